// The keys that a phone's keyboard lacks, as a row of buttons. Ctrl is for the next key, of this row or of the keyboard.

const key_texts = { escape: '\x1b', tab: '\t', interrupt: '\x03' };
const arrow_letters = { up: 'A', down: 'B', right: 'C', left: 'D' };

class KeyRow {
  /// `press`: given the text of a key, and for an arrow its letter.
  constructor(row, press) {
    this.control = row.querySelector('[data-key="control"]');
    row.addEventListener('mousedown', (event) => event.preventDefault()); // Else the focus goes, and the phone's keyboard with it.
    row.addEventListener('click', ({ target }) => {
      const key = target.closest('button')?.dataset.key;
      if (key === 'control') return this.hold(!this.held);
      if (key) press(key_texts[key], arrow_letters[key]);
      this.hold(false);
    });
  }

  get held() {
    return this.control.getAttribute('aria-pressed') === 'true';
  }

  hold(whether) {
    this.control.setAttribute('aria-pressed', whether);
  }

  /// What is typed, with Ctrl if that is held.
  typed(text) {
    if (!this.held || text.length !== 1) return text;
    this.hold(false);
    return /[@-_a-z ]/.test(text) ? String.fromCharCode(text.charCodeAt(0) & 0x1f) : text;
  }
}
