// xterm.js writes its colours and sizes into style elements that it makes. The page's policy knows the two of its own by
// their hashes and refuses all others, so what these are given goes into style sheets that scripts may make.

const make_element = document.createElement.bind(document);
document.createElement = (name, options) => {
  if (name !== 'style') return make_element(name, options);
  const element = make_element('template'); // The policy refuses style elements that are empty, too.
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, 'textContent', { set: (text) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
};
