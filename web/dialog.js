// dialog.js - questions that wait for an answer.
import { h } from './dom.js';

// Ask with the given buttons, [{value, t, kind}]; resolves to a value, or null when dismissed by Escape.
export function ask(titleKey, textKey, buttons) {
  return new Promise((resolve) => {
    const dialog = h(
      'dialog',
      { 'aria-labelledby': 'ask-title', 'aria-describedby': 'ask-text' },
      h('h2', { id: 'ask-title', t: titleKey }),
      h('p', { id: 'ask-text', t: textKey }),
      h(
        'form',
        { method: 'dialog', class: 'answers' },
        buttons.map(({ value, t, kind }) =>
          h('button', { value, t, class: kind ?? '', autofocus: kind === 'primary' }),
        ),
      ),
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue || null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
