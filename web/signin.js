// signin.js - the view of who is not signed in: paste a token, or learn how to get a link.
import { h, newId, setString, setText } from './dom.js';
import { t } from './strings.js';

// signIn({token}) resolves when the session began; reason is a string key, or undefined.
export function signInView(signIn, reason) {
  const id = newId('token');
  const field = h('input', {
    id,
    type: 'password',
    autocomplete: 'current-password',
    required: true,
    spellcheck: 'false',
    'aria-describedby': `${id}-hint`,
  });
  const problem = h('p', { class: 'problem', role: 'alert', hidden: !reason });
  if (reason) {
    setString(problem, reason);
  }
  const button = h('button', { class: 'primary', t: 'signin.submit' });
  const form = h(
    'form',
    { class: 'stack', novalidate: true },
    h('label', { for: id, t: 'signin.token' }),
    field,
    h('p', { id: `${id}-hint`, class: 'hint', t: 'signin.hint' }),
    problem,
    button,
  );
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    problem.removeAttribute('data-t');
    if (!field.value.trim()) {
      setText(problem, t('signin.empty'));
      problem.hidden = false;
      field.focus();
      return;
    }
    button.disabled = true;
    try {
      await signIn({ token: field.value.trim() });
    } catch (error) {
      setText(problem, error.status === 401 ? t('signin.wrong') : error.message);
      problem.hidden = false;
      field.select();
    } finally {
      button.disabled = false;
    }
  });
  document.title = 'Hone';
  return {
    node: h(
      'section',
      { class: 'card narrow' },
      h('h1', { t: 'signin.title', tabindex: -1 }),
      h('p', { t: 'signin.about' }),
      form,
      h('h2', { t: 'signin.link_title' }),
      h('p', { t: 'signin.link' }),
      h('pre', {}, 'hone login-link'),
    ),
  };
}
