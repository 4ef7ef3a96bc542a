"""Adds the reference pages, made from the rules and the code, to the site while it is built."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Every generated page becomes a file of the site; none is written into the folder of sources."""
    for path, text in _pages().reference_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def _pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kvdiag_docs_pages", Path(__file__).with_name("pages.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
