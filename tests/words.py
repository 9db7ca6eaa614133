"""The words of a page that a person reads, whatever is folded away."""

import html.parser
import re

# The most words of a page with every section: those that are seen at once, and all of them.
MOST_AT_LOAD, MOST_WORDS = 2500, 3900
# Pictures, scripts, cells of tables, addresses of files and lines of code are not read as text.
_NOT_READ = {'script', 'style', 'svg', 'table', 'code', 'select', 'a', 'button'}
_ALONE = {'meta', 'img', 'br', 'link', 'input'}
_BLOCKS = {'p', 'li', 'h1', 'h2', 'h3', 'figcaption', 'summary', 'output', 'div', 'span', 'title'}


class _Text(html.parser.HTMLParser):
    def __init__(self, page, at_load):
        super().__init__()
        self.at_load = at_load
        self.open, self.pieces = [], ['']
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag in _ALONE:
            return
        file = tag == 'a' and not dict(attributes).get('href', '').startswith('#')
        hidden = tag in _NOT_READ and (tag != 'a' or file)
        closed = tag == 'details' and 'open' not in dict(attributes)
        self.open.append((tag, hidden or (closed and self.at_load)))
        if tag in _BLOCKS:
            self.pieces.append('')

    def handle_endtag(self, tag):
        if tag not in _ALONE:
            self.open.pop()
        if tag in _BLOCKS:
            self.pieces.append('')

    def handle_data(self, data):
        names = [tag for tag, _ in self.open]
        # The summary of what is closed is seen.
        inner = names.index('summary') - 1 if 'summary' in names else -1
        if not any(hidden for at, (_, hidden) in enumerate(self.open) if at != inner):
            self.pieces[-1] += data


def count_words(text):
    """Return the number of words of a text; a number is no word."""
    return len(re.findall(r'\S*[^\W\d_]\S*', text))


def longest_sentence(text):
    """Return how many words the longest sentence of a text has."""
    return max(map(count_words, re.split(r'(?<=[.!?])\s+(?=[A-Z"])', text)))


def texts_of(page, *, at_load=False):
    """Return the texts of a page, or those `at_load`, outside of what is folded."""
    return [text for piece in _Text(page, at_load).pieces if (text := ' '.join(piece.split()))]
