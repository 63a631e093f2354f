"""Which files a run reads."""

from pathlib import Path

import pytest
from meshlang_models.data.files import digest, find_files


def names(files: tuple[Path, ...], root: Path) -> list[str]:
    """The files' paths below the folder."""
    return [file.relative_to(root).as_posix() for file in files]


def write(root: Path, **files: str) -> None:
    """Write files; in a name `__` stands for a slash and `_dot_` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_files_come_by_relative_name(tmp_path: Path) -> None:
    """Files are ordered by their path below the folder, whatever order they were made in."""
    write(tmp_path, z_dot_txt="z", a__b_dot_py="b", a__a_dot_md="a")
    assert names(find_files(str(tmp_path)), tmp_path) == ["a/a.md", "a/b.py", "z.txt"]


def test_patterns_match_names_and_paths(tmp_path: Path) -> None:
    """A pattern selects by file name or by path below the folder."""
    write(tmp_path, a__one_dot_csv="1", a__two_dot_py="2", b__three_dot_py="3")
    assert names(find_files(str(tmp_path), ("*.csv",)), tmp_path) == ["a/one.csv"]
    assert names(find_files(str(tmp_path), ("a/*.py", "*.csv")), tmp_path) == ["a/one.csv", "a/two.py"]


def test_hidden_and_installed_folders_are_left_out(tmp_path: Path) -> None:
    """Hidden folders, caches and installed packages hold no documents, nor do empty files."""
    for folder in (".git", "__pycache__", "site-packages", "kept"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("x = 1\n")
    (tmp_path / "kept" / "empty.py").write_text("")
    assert names(find_files(str(tmp_path)), tmp_path) == ["kept/a.py"]


def test_one_file_is_a_whole_corpus(tmp_path: Path) -> None:
    """A path to a file is that file, whatever its name ends in."""
    write(tmp_path, corpus_dot_log="text")
    assert find_files(str(tmp_path / "corpus.log")) == (tmp_path / "corpus.log",)


def test_default_is_the_standard_library() -> None:
    """Without a path the documents are Python's own sources, and no installed package."""
    files = find_files("")
    assert len(files) > 100
    assert {file.suffix for file in files} == {".py"}
    assert not any("site-packages" in file.parts for file in files)


def test_missing_path_is_named(tmp_path: Path) -> None:
    """A path that is not there is a ValueError that names it."""
    with pytest.raises(ValueError, match=r"no file or folder .*absent"):
        find_files(str(tmp_path / "absent"))


def test_folder_without_text_is_named(tmp_path: Path) -> None:
    """A folder in which nothing matches is a ValueError with the patterns."""
    write(tmp_path, a_dot_csv="1")
    with pytest.raises(ValueError, match=r"matches \*\.md or \*\.py or \*\.txt"):
        find_files(str(tmp_path))


def test_folder_of_empty_files_is_named(tmp_path: Path) -> None:
    """A folder whose matching files are all empty is a ValueError that counts them."""
    write(tmp_path, a_dot_py="", b_dot_py="")
    with pytest.raises(ValueError, match=r"is empty \(2 found\)"):
        find_files(str(tmp_path))


def test_digest_follows_names_and_sizes(tmp_path: Path) -> None:
    """The digest of a set of files changes when a file grows."""
    write(tmp_path, a_dot_py="x", b_dot_py="y")
    before = digest(find_files(str(tmp_path)))
    assert digest(find_files(str(tmp_path))) == before
    write(tmp_path, b_dot_py="yy")
    assert digest(find_files(str(tmp_path))) != before
