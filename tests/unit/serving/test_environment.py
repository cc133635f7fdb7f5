"""lepa.serving.environment"""

import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from lepa.model.errors import LepaError
from lepa.serving.environment import check, modules_named, own_modules, packages_of, python_version, versions


def test_the_packages_that_a_pickle_refers_to_are_found_without_running_it() -> None:
    pickle = cloudpickle.dumps(lambda rows: np.asarray(rows).sum(axis=1))
    modules = modules_named(pickle)
    assert "numpy" in modules
    assert not modules & {"json", "builtins", "__main__"}
    assert packages_of(modules)["numpy"] == np.__version__
    assert "cloudpickle" not in packages_of({"cloudpickle"})


def test_a_module_of_no_distribution_is_a_file_of_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "myfeatures.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import myfeatures

    assert own_modules({"myfeatures", "numpy", "lepa", "sys"}) == [myfeatures]
    monkeypatch.delitem(sys.modules, "myfeatures")
    assert own_modules({"myfeatures"}) == []


def test_versions_of_what_is_installed() -> None:
    assert versions(["numpy", "no-such-package"]) == {"numpy": np.__version__}


def test_what_cannot_run_here_is_refused_with_a_sentence() -> None:
    check(python_version(), {"numpy": np.__version__})
    with pytest.raises(LepaError, match=r"pickled by Python 2\.7"):
        check("2.7", {})
    with pytest.raises(LepaError, match=r"needs numpy 0\.9; found"):
        check(python_version(), {"numpy": "0.9"})
