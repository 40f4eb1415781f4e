(() => {
  'use strict';

  // Decoded once, as the server does: no "+" for a blank.
  const token_of = (query) => {
    const found = /[?&]token=([^&]*)/.exec(query);
    try {
      return found ? decodeURIComponent(found[1]) : '';
    } catch {
      return ''; // The node asks for no key, or it would not have shown this page.
    }
  };

  const token = token_of(location.search);
  if (location.search) // A key does not stay in the address bar, nor in the history.
    history.replaceState(null, '', location.pathname + location.hash);

  // Dark where everything is; Swagger UI knows its colours by this class.
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const colour = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
  dark.addEventListener('change', colour);
  colour();

  const ui = SwaggerUIBundle({
    spec: JSON.parse(document.getElementById('document').textContent),
    domNode: document.getElementById('reference'),
    validatorUrl: null, // It would send the document away.
    deepLinking: true,
    tryItOutEnabled: true,
    displayRequestDuration: true,
    defaultModelsExpandDepth: 0,
    onComplete: () => {
      if (token)
        ui.preauthorizeApiKey('BearerAuth', token);
    },
  });
})();
