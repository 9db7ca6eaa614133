"""Make the pictures of the quickstart: `python docs/pictures.py results/first`, a finished report.

That folder is made by `bert-secrets report --config=quickstart --out=results/first`. The picture of
the first screen says in its file what it was made of, so that a test finds one that is too old.
"""

import hashlib
import pathlib
import re
import shutil
import sys

DOCS = pathlib.Path(__file__).parent
PICTURE = DOCS / 'first_screen.png'
# The figures of the first tutorial, by their names in the folder of a run.
FIGURES = {
    'ablation_heads': 'effect_of_each_head',
    'attention_change_fig5_by_layer': 'change_by_layer',
}
# What the look of the first screen is made of; what it says is compared by itself (`words`).
_LOOK = (
    'report/page.html', 'report/page.css', 'report/atlas.html', 'report/atlas.py',
    'report/explorer.html', 'report/common.js', 'plots/kinds.json',
)  # fmt: skip


def look() -> str:
    """Return a digest of the files that the look of the first screen is made of."""
    package = DOCS.parent / 'bert_secrets_jax'
    digest = hashlib.sha256()
    for name in _LOOK:
        digest.update((package / name).read_bytes())
    return digest.hexdigest()


def words(text: str) -> str:
    """Return the words of a page above its atlas, from its HTML.

    A # stands for each number, which other machines may round otherwise.
    """
    parts = re.findall(
        r'<h1>.*?</h1>|<p class="lead">.*?</p>|<ul class="told">.*?</ul>', text, re.S
    )
    plain = re.sub(r'<[^>]*>', ' ', ' '.join(parts))
    return ' '.join(re.sub(r'[-+]?\d[\d.,]*\d|\d', '#', plain).split())


def first_screen(report: pathlib.Path) -> bytes:
    """Return the first screen of a page as it is opened in Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = shutil.which('chromium')
        browser = driver.chromium.launch(executable_path=chromium, args=['--no-sandbox'])
        tab = browser.new_page(viewport={'width': 1400, 'height': 900})
        tab.goto(report.resolve().as_uri())
        tab.wait_for_selector('.bs-explorer[data-ready]')
        picture = tab.screenshot()
        browser.close()
    return picture


def write(folder: pathlib.Path) -> None:
    """Write all pictures from the folder of a finished report."""
    import io

    from PIL import Image, PngImagePlugin

    about, report = PngImagePlugin.PngInfo(), folder / 'report.html'
    about.add_text('look', look())
    about.add_text('words', words(report.read_text('utf-8')))
    Image.open(io.BytesIO(first_screen(report))).save(PICTURE, pnginfo=about, optimize=True)
    for figure, name in FIGURES.items():
        shutil.copy(folder / 'figures' / f'{figure}.png', DOCS / 'tutorials' / f'{name}.png')


if __name__ == '__main__':
    write(pathlib.Path(sys.argv[1]))
