/*
 * Dialogs: the browser's own, closed by Escape or a click outside. The focus
 * goes back to where it was.
 */
import { Component, createRef, h, render } from './ui.js';

let ids = 0;

/* Shows h(component, {...props, close}); one dialog at a time. */
export function openDialog(component, props) {
  if (document.querySelector('dialog[open]')) {
    return Promise.resolve(null);
  }
  const place = document.createElement('div');
  const before = document.activeElement;
  return new Promise((resolve) => {
    const close = (result = null) => {
      if (place.isConnected) {
        render(null, place);
        place.remove();
        before?.isConnected && before.focus();
        resolve(result);
      }
    };
    document.body.append(place);
    render(h(component, { ...props, close }), place);
  });
}

/* {title, label instead of a title, close, wide, children} */
export class Box extends Component {
  constructor(props) {
    super(props);
    this.element = createRef();
    this.id = `d${++ids}`;
  }

  componentDidMount() {
    const dialog = this.element.current;
    dialog.showModal();
    (dialog.querySelector('input, textarea, select') || dialog.querySelector('button'))?.focus();
  }

  render({ title, label, close, wide, children }) {
    return h('dialog', {
      ref: this.element, class: `dialog ${wide ? 'wide' : ''}`, 'aria-label': label, 'aria-labelledby': title && this.id,
      onClose: () => close(), onPointerDown: (event) => event.target === event.currentTarget && close(),
    }, h('div', { class: 'inside' }, title && h('h2', { id: this.id }, title), children));
  }
}
