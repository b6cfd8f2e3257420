// A flag to wait for.
export class Bell {
  #rung = false;
  #resolve = null;

  ring() {
    this.#rung = true;
    this.#resolve?.();
  }

  async wait(ms) {
    let timer;

    if (!this.#rung) {
      await new Promise((resolve) => {
        this.#resolve = resolve;
        if (ms !== undefined) timer = setTimeout(resolve, ms);
      });
    }
    clearTimeout(timer);
    this.#rung = false;
    this.#resolve = null;
  }
}
