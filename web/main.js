// main.js - starts the page: language, session, then the view that the address names.
//
//   #/            the list of jobs     #/new?like=JOB      a new run, with the settings of a job
//   #/jobs/ID     a job                #/new?model=ID      a new run that starts from a model
//   #/queue        what waits and why   #/machine            devices and how they are joined
//   #login=CODE   signs in, once       #/talk?model=ID     a talk with a model
import { ApiError, get, onSignedOut, post, setCsrf } from './api.js';
import { arrayView } from './array.js';
import { loadPlotter } from './chart.js';
import { h, setString, translate } from './dom.js';
import { jobView } from './job.js';
import { jobsView } from './jobs.js';
import { isLive, listen, startLive, stopLive } from './live.js';
import { machineView } from './machine.js';
import { newView } from './new.js';
import { queueView } from './queue.js';
import { signInView } from './signin.js';
import {
  LANGUAGES,
  language,
  loadLanguage,
  preferredLanguage,
  rememberLanguage,
} from './strings.js';
import { talkView } from './talk.js';

const main = document.getElementById('main');
const header = document.getElementById('header');
let user = null;
let view = null;

const valuesOf = (query) => Object.fromEntries(new URLSearchParams(query));

const ROUTES = [
  [/^#?\/?$/, () => jobsView(user)],
  [/^#\/jobs\/([^/?]+)$/, (id) => jobView(decodeURIComponent(id), user)],
  [/^#\/new(?:\?(.+))?$/, (query) => newView(valuesOf(query))],
  [/^#\/arrays\/([^/?]+)$/, (id) => arrayView(decodeURIComponent(id), user)],
  [/^#\/queue$/, () => queueView(user)],
  [/^#\/machine$/, () => machineView(user)],
  [/^#\/talk(?:\?(.+))?$/, (query) => talkView(valuesOf(query))],
];

function missingView() {
  return {
    node: h(
      'section',
      { class: 'card' },
      h('h1', { t: 'page.missing', tabindex: -1 }),
      h('a', { href: '#/', t: 'page.home' }),
    ),
  };
}

// A view is {node, language?() called after a switch, close?()}.
function show(next, { focus = true } = {}) {
  view?.close?.();
  view = next;
  main.replaceChildren(next.node);
  if (focus) {
    main.querySelector('h1')?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
}

function route(options) {
  if (!user) {
    return;
  }
  const found = ROUTES.map(([pattern, make]) => [location.hash.match(pattern), make]).find(
    ([match]) => match,
  );
  show(found ? found[1](found[0][1]) : missingView(), options);
  for (const link of header.querySelectorAll('nav a')) {
    const here = link.getAttribute('href') === (location.hash.split('?')[0] || '#/');
    link.toggleAttribute('aria-current', here);
    if (here) {
      link.setAttribute('aria-current', 'page');
    }
  }
}

async function switchLanguage(tag) {
  await loadLanguage(tag);
  rememberLanguage(tag);
  translate(document);
  view?.language?.();
  for (const button of header.querySelectorAll('.languages button')) {
    button.setAttribute('aria-pressed', String(button.lang.startsWith(language())));
  }
}

function paintHeader() {
  const languages = Object.entries(LANGUAGES).map(([tag, name]) =>
    h(
      'button',
      {
        type: 'button',
        class: 'quiet',
        lang: tag === 'zh' ? 'zh-CN' : tag,
        'aria-pressed': String(tag === language()),
        onclick: () => switchLanguage(tag),
      },
      name,
    ),
  );
  const skip = h('button', {
    type: 'button',
    class: 'skip',
    t: 'page.skip',
    onclick: () => main.focus(),
  });
  const brand = h(
    'a',
    { href: '#/', class: 'brand', 't-aria-label': 'page.home' },
    h('img', { src: 'icon.svg', alt: '', width: 26, height: 26 }),
    'Hone',
  );
  const links =
    user &&
    h(
      'nav',
      { 't-aria-label': 'page.navigation' },
      h('a', { href: '#/', t: 'page.jobs' }),
      h('a', { href: '#/queue', t: 'page.queue' }),
      h('a', { href: '#/machine', t: 'page.machine' }),
      user.role !== 'viewer' && h('a', { href: '#/new', t: 'page.new' }),
      user.role !== 'viewer' && h('a', { href: '#/talk', t: 'page.talk' }),
    );
  const status = h('span', {
    class: 'live',
    t: isLive() ? 'page.live' : 'page.not_live',
    'data-open': String(isLive()),
  });
  const account =
    user &&
    h(
      'div',
      { class: 'account' },
      status,
      h('span', { class: 'user' }, user.name),
      h('button', { type: 'button', class: 'quiet', t: 'page.sign_out', onclick: signOut }),
    );
  header.replaceChildren(
    skip,
    brand,
    ...[
      links,
      h('div', { class: 'languages', role: 'group', 't-aria-label': 'page.language' }, languages),
      account,
    ].filter(Boolean),
  );
}

function paintLive(open) {
  const status = header.querySelector('.live');
  if (status) {
    status.dataset.open = String(open);
    setString(status, open ? 'page.live' : 'page.not_live');
  }
}

function signedIn(session) {
  user = session;
  setCsrf(session.csrf);
  paintHeader();
  startLive();
  route();
}

function signedOut(reason) {
  stopLive();
  user = null;
  setCsrf('');
  paintHeader();
  show(signInView(signIn, reason));
}

async function signOut() {
  try {
    await post('/v1/logout');
  } catch {
    // The session is gone or the server is away: either way this page forgets it.
  }
  signedOut();
}

// Exchange {code} or {token} for a session. Throws ApiError.
async function signIn(credential) {
  const { csrf } = await post('/v1/login', credential);
  const me = await get('/v1/me');
  signedIn({ ...me, csrf: me.csrf ?? csrf });
}

// The one-use code of the address, which is taken out of it at once.
function takeCode() {
  const match = location.hash.match(/^#\/?login=([^&]+)$/);
  if (match) {
    history.replaceState(null, '', `${location.pathname}#/`);
  }
  return match ? decodeURIComponent(match[1]) : null;
}

async function resume(code) {
  try {
    if (code) {
      await signIn({ code });
      return;
    }
  } catch (error) {
    // A used or old link: the browser may have a session all the same.
    if (!(error instanceof ApiError) || error.status === 0) {
      throw error;
    }
  }
  try {
    signedIn(await get('/v1/me'));
  } catch (error) {
    signedOut(code ? 'signin.old_link' : error.status === 401 ? undefined : 'error.offline');
  }
}

async function start() {
  const code = takeCode();
  await Promise.all([loadLanguage(preferredLanguage()), loadPlotter()]);
  paintHeader();
  onSignedOut(() => {
    if (user) {
      signedOut('signin.expired');
    }
  });
  listen((message) => {
    if (message.name === 'state') {
      paintLive(message.open);
    } else if (message.name === 'refused' && user) {
      // The stream was turned away: a session that ended answers 401 here and leads to the sign-in view.
      get('/v1/jobs?limit=1').catch(() => {});
    }
  });
  window.addEventListener('hashchange', async () => {
    const again = takeCode();
    if (again) {
      await resume(again);
    } else {
      route();
    }
  });
  await resume(code);
}

start();
