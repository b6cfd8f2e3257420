// The log: an object for each event, by default as a line of JSON on stderr.

// The time as text, made once a millisecond.
export const stamp = (() => {
  let ms = 0;
  let text = '';

  return () => {
    const now = Date.now();

    if (now !== ms) [ms, text] = [now, new Date(now).toISOString()];
    return text;
  };
})();

export function logLine(entry) {
  process.stderr.write(`${JSON.stringify(entry)}\n`);
}
