"""An SGLang tree: the code path behind a number, the statement behind a line, what two trees have different."""

from kvdiag.source.changes import Change, path_changes
from kvdiag.source.opening import open_against, open_tree
from kvdiag.source.path import CodePath, PathStep, code_path
from kvdiag.source.tree import SourceTree, TreeRelease

__all__ = [
    "Change",
    "CodePath",
    "PathStep",
    "SourceTree",
    "TreeRelease",
    "code_path",
    "open_against",
    "open_tree",
    "path_changes",
]
