(() => {
  'use strict';

  const asked = new URLSearchParams(location.search);
  const place = `/oauth/nodes/${encodeURIComponent(asked.get('node') || 'here')}/sign-in`;
  const form = (name) => document.getElementById(name);
  const code = form('code');
  const said = form('said');

  function show(name) {
    for (const each of ['code', 'key', 'grant'])
      form(each).hidden = each !== name;
    if (name && name !== 'grant') // There a second press of Enter would allow.
      form(name).querySelector('input:not([value])')?.focus();
  }
  function say(text) {
    said.textContent = text;
  }
  async function why(answer) {
    const told = await answer.json().catch(() => ({}));
    return told.error?.message ?? told.error ?? `The node says ${answer.status}.`;
  }
  function submitted(name, work) {
    form(name).addEventListener('submit', (event) => {
      event.preventDefault();
      say('');
      work(form(name)).catch(() => say('The node cannot be reached.'));
    });
  }

  async function look() {
    const answer = await fetch(`${place}?user_code=${encodeURIComponent(code.user_code.value)}`);
    if (answer.status === 401)
      return show('key');
    if (!answer.ok) {
      show('code');
      return say(await why(answer));
    }
    const is = await answer.json();
    const grant = form('grant');
    form('network').textContent = is.network;
    form('shown').textContent = is.user_code;
    grant.team.value = is.team;
    grant.project.value = is.project;
    grant.days.max = is.most_days;
    show('grant');
  }

  async function decide(what, done) {
    const answer = await fetch(place, { method: 'POST', body: JSON.stringify({ user_code: code.user_code.value, ...what }) });
    if (answer.status === 401)
      return show('key');
    if (!answer.ok)
      return say(await why(answer));
    show('');
    say(done);
  }

  submitted('code', look);
  submitted('key', async (typed) => {
    const answer = await fetch('/console/sign-in', { method: 'POST', body: typed.key.value });
    typed.key.value = '';
    if (!answer.ok)
      return say(await why(answer));
    await look();
  });
  submitted('grant', (grant) => decide({ team: grant.team.value, project: grant.project.value, days: Number(grant.days.value) },
    'The command line is signed in. You can close this page.'));
  form('refuse').addEventListener('click', () => {
    decide({ refuse: true }, 'The sign-in is refused.').catch(() => say('The node cannot be reached.'));
  });

  code.user_code.value = asked.get('user_code') ?? '';
  show('code');
  if (code.user_code.value)
    look().catch(() => say('The node cannot be reached.'));
})();
