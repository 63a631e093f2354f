"""Sphinx builds these pages: `make docs`."""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "meshlang"
version = release = metadata.version("meshlang")
author = "the authors of meshlang"

extensions = ["myst_parser", "sphinx_copybutton", "making"]
exclude_patterns = ["_build", "making"]
myst_heading_anchors = 3
smartquotes = False  # `"rest"` is a word of the language
suppress_warnings = ["misc.highlighting_failure"]  # pages of findings show text that is no TOML

html_theme = "furo"
html_title = "meshlang"
html_static_path = ["static"]
html_css_files = ["meshlang.css"]
html_use_index = False
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
