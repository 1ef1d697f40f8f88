"""Imports your modules and scripts from the copy that a run keeps, under their original paths.

A kept module has its original path as `__file__`, so files next to the code can be found. Its
source comes from the copy, also in `inspect` and in tracebacks. If a script has changed, the kept
version runs. Modules that were not kept are imported from the disk.

A worker imports this module. The archive of kept code contains a copy of it, which is called
`sitecustomize.py`. Every Python below the worker imports that copy when it starts, in any
environment. So this file only uses the standard library, and the syntax of old versions.
"""

import marshal
import os
import sys

try:
    # The same objects as in `importlib.util` and `importlib.machinery`. Importing these takes each
    # program several milliseconds, but the frozen modules are part of the interpreter.
    from _frozen_importlib import module_from_spec, spec_from_loader
    from _frozen_importlib_external import (
        PathFinder,
        SourceFileLoader,
        decode_source,
        spec_from_file_location,
    )
except ImportError:
    from importlib.machinery import PathFinder, SourceFileLoader
    from importlib.util import (
        decode_source,
        module_from_spec,
        spec_from_file_location,
        spec_from_loader,
    )

VARIABLE = "WORKBENCH_KEPT_CODE"
"""The environment variable with the folder of the kept code."""
SEEN_VARIABLE = "WORKBENCH_KEPT_CODE_SEEN"
"""The environment variable with a file that a program makes when it runs kept code."""
MANIFEST = "manifest.json"
"""What was kept, for people and for every version of the workbench. Its keys never change."""
INDEX = "index.bin"
"""The same for programs, which read it without `json`. Many a trial is shorter than that import."""
FORMAT = 3
"""The format of the index. Increase it whenever the keys of the index change."""
STARTUP = "startup"
"""The folder, inside the kept code, that is on the path of every Python below the worker."""


def index_of(kept, tops, gone=()):
    """Return the table that a program reads when it starts, so that it need not list the files.

    Args:
        kept: Where the copy of each file is in the folder of the kept code, by original path.
        tops: Paths of modules that only their own finder finds, by name.
        gone: Original paths of files that this version of the code does not have. The disk may
            have them.
    """
    names = set()
    for path in [*kept, *gone]:
        stem, suffix = os.path.splitext(os.path.basename(path))
        if suffix == ".py":
            names.add(os.path.basename(os.path.dirname(path)) if stem == "__init__" else stem)
    real = {os.path.realpath(path): path for path in kept}
    real = {to: path for to, path in real.items() if to != path}
    # The oldest format of marshal, which every Python reads. It has no sets.
    table = {
        "format": FORMAT,
        "kept": dict(kept),
        "real": real,
        "names": dict.fromkeys(sorted(names)),
        "tops": dict(tops),
        "gone": dict.fromkeys(sorted(gone)),
    }
    return marshal.dumps(table, 2)


def _read_index(folder):
    """Return the index of a folder of kept code, whichever version of the workbench packed it."""
    with open(os.path.join(folder, INDEX), "rb") as file:
        index = marshal.loads(file.read())
    if index.get("format") == FORMAT:
        return index
    # The process that packed the code may run another version than the worker that reads it: a
    # notebook or a head that was started before an update, or a run that is resumed after it.
    # Programs below the worker never get here, because their copy of this module is in the archive.
    import json

    with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
        manifest = json.load(file)
    kept = {path: entry["kept"] for path, entry in manifest["files"].items()}
    return marshal.loads(index_of(kept, manifest.get("tops", {}), manifest.get("gone", ())))


class KeptFiles:
    """The files of a folder of kept code, by their original paths."""

    def __init__(self, folder: str) -> None:
        """Read the index of a folder."""
        index = _read_index(folder)
        self.folder = folder
        self.tops = index["tops"]
        self.names = index["names"]
        self.gone = index["gone"]
        self._kept = index["kept"]
        self._real = index["real"]

    @property
    def paths(self):
        """The original paths of the files, and the same paths without symbolic links."""
        return [*self._kept, *self._real]

    def place(self, path):
        """Return where the copy of a file is, or None if it was not kept."""
        copy = self._kept.get(path)
        if copy is None:
            real = os.path.realpath(path)
            copy = self._kept.get(self._real.get(real, real))
        if copy is None:
            return None
        return os.path.join(self.folder, copy)

    def content(self, path):
        """Return the kept bytes of a file."""
        place = self.place(path)
        if place is None:
            raise FileNotFoundError(path)
        with open(place, "rb") as file:
            return file.read()

    def has_changed(self, path):
        """Return whether a kept file is different on the disk now, or missing."""
        try:
            with open(path, "rb") as file:
                return file.read() != self.content(path)
        except OSError:
            return True


class KeptLoader(SourceFileLoader):
    """Loads one module from its copy."""

    def __init__(self, name, path, kept):
        """Load the module `name`, whose original path is `path`."""
        super().__init__(name, path)
        self._kept = kept

    def get_data(self, path):
        """Return the bytes of the copy. Any other file is read from the disk."""
        if self._kept.place(path) is None:
            return super().get_data(path)
        return self._kept.content(path)

    def path_stats(self, path):
        """Keep Python from using bytecode next to the original, which may be another version."""
        raise OSError("the bytecode of kept code is next to the copy")

    def get_code(self, fullname):
        """Return the compiled module. It is compiled once for each folder of kept code."""
        tag = f"{sys.implementation.cache_tag}-{sys.flags.optimize}"
        place = f"{self._kept.place(self.path)}.{tag}.code"
        try:
            with open(place, "rb") as file:
                return marshal.loads(file.read())
        except (OSError, EOFError, ValueError, TypeError):
            pass
        code = self.source_to_code(self.get_data(self.path), self.path)
        try:
            unfinished = f"{place}.{os.getpid()}"
            with open(unfinished, "wb") as file:
                file.write(marshal.dumps(code))
            os.replace(unfinished, place)
        except OSError:
            pass  # the next process compiles it again
        return code

    def exec_module(self, module):
        """Run the module, and let tracebacks and `inspect` show its source."""
        self.show_source()
        super().exec_module(module)

    def show_source(self):
        """Give the source to tracebacks and `inspect`, which would read the file on the disk."""
        linecache = sys.modules.get("linecache")
        # Importing linecache takes time. If the file has not changed, the disk is just as good.
        if linecache is None:
            if not self._kept.has_changed(self.path):
                return
            import linecache
        source = decode_source(self._kept.content(self.path))
        # Without a modification time, linecache does not compare it with the disk.
        linecache.cache[self.path] = (len(source), None, source.splitlines(True), self.path)


class MainLoader(KeptLoader):
    """Loads the kept version of a script.

    Python treats the path of the script like an archive with a `__main__` in it.
    """

    def __init__(self, path, given, kept):
        """Load the script at `path`, which is written as `given` on the command line."""
        super().__init__("__main__", path, kept)
        self._given = given

    def get_code(self, fullname):
        """Return code that makes `__main__` look like a script's, and runs the script."""
        folder = os.path.dirname(os.path.realpath(self.path))
        sys.path[:] = [folder if entry == self._given else entry for entry in sys.path]
        return compile("__loader__.run(globals())", __file__, "exec")

    def run(self, variables):
        """Run the script with the variables of its module."""
        is_main = variables.get("__name__") == "__main__"
        loader = KeptLoader(variables["__name__"], self.path, self._kept)
        loader.show_source()
        variables.update(
            __spec__=None, __package__=None, __cached__=None, __file__=self.path, __loader__=loader
        )
        if is_main:
            sys.excepthook = self._show_exception
        exec(loader.get_code("__main__"), variables)  # this is how Python runs a script

    def _show_exception(self, kind, error, trace):
        """Show an uncaught exception, starting with the first line of the script."""
        import traceback

        first = trace
        while first is not None and first.tb_frame.f_code.co_filename != self.path:
            first = first.tb_next
        traceback.print_exception(kind, error, first or trace)


class KeptFinder:
    """Finds the kept modules, at the places where they would be found on the disk."""

    def __init__(self, kept):
        """Find modules among some kept files."""
        self.kept = kept
        self._scripts = {}
        self._seen = os.environ.get(SEEN_VARIABLE)

    def find_spec(self, fullname, path=None, target=None):
        """Return where a module is, if it was kept."""
        if fullname == "__main__":
            script = None
            if sys.path:
                script = self._scripts.get(sys.path[0])
            return script and spec_from_loader("__main__", script, origin=script.path)
        tail = fullname.rpartition(".")[2]
        if tail not in self.kept.names:
            return None
        for entry in sys.path if path is None else path:
            base = os.path.join(os.path.abspath(entry or os.curdir), tail)
            for place, folders in (
                (os.path.join(base, "__init__.py"), [base]),
                (base + ".py", None),
            ):
                if self.kept.place(place) is not None:
                    self._show_that_kept_code_runs()
                    return self._spec(fullname, place, folders)
                if place in self.kept.gone and os.path.exists(place):
                    raise ModuleNotFoundError(
                        "No module named " + fullname + " in this version of the code",
                        name=fullname,
                    )
            spec = PathFinder.find_spec(fullname, [entry])
            if spec is not None and spec.loader is not None:
                return None  # another module of this name comes first
        place = self.kept.tops.get(fullname) if path is None else None
        if place is None or self.kept.place(place) is None:
            return None
        is_package = os.path.basename(place) == "__init__.py"
        return self._spec(fullname, place, [os.path.dirname(place)] if is_package else None)

    def _spec(self, fullname, place, folders):
        loader = KeptLoader(fullname, place, self.kept)
        return spec_from_file_location(
            fullname, place, loader=loader, submodule_search_locations=folders
        )

    def script_hook(self, entry):
        """Accept a script that was kept and has changed.

        Python asks path hooks whether the path of a script is an archive with a `__main__`.
        """
        path = os.path.abspath(entry)
        is_kept = self.kept.place(path) is not None
        if is_kept:
            self._show_that_kept_code_runs()
        if not is_kept or not self.kept.has_changed(path):
            raise ImportError("not a script that was kept and has changed")
        self._scripts[entry] = MainLoader(path, entry, self.kept)
        return ScriptEntry()

    def _show_that_kept_code_runs(self):
        """Make a file that tells the workbench that this program runs kept code."""
        if self._seen:
            seen, self._seen = self._seen, None
            try:
                open(seen, "a").close()
            except OSError:
                return  # without the file, the code on the disk is compared for each trial


class ScriptEntry:
    """An entry of the path that contains only the `__main__` of a script. See `KeptFinder`."""

    def find_spec(self, fullname, target=None):
        """Find nothing."""
        return None

    def invalidate_caches(self):
        """Do nothing, because there are no caches."""


def install(folder):
    """Import from a folder of kept code, instead of an earlier one.

    Args:
        folder: The folder. None imports everything from the disk again.
    """
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if type(finder).__name__ != KeptFinder.__name__
    ]
    sys.path_hooks[:] = [
        hook
        for hook in sys.path_hooks
        if type(getattr(hook, "__self__", None)).__name__ != KeptFinder.__name__
    ]
    if folder:
        finder = KeptFinder(KeptFiles(folder))
        sys.meta_path.insert(0, finder)
        sys.path_hooks.insert(0, finder.script_hook)


def variables(folder, before):
    """Return the environment variables that let every Python below this process use a folder.

    Args:
        folder: The folder.
        before: The environment variables so far.
    """
    kept = [entry for entry in before.get("PYTHONPATH", "").split(os.pathsep) if entry]
    kept = [entry for entry in kept if os.path.basename(entry) != STARTUP]
    return {VARIABLE: folder, "PYTHONPATH": os.pathsep.join([os.path.join(folder, STARTUP), *kept])}


def _start():
    """Use the kept code in a Python that has just started.

    Then run the environment's own `sitecustomize`, if there is one.
    """
    own = os.path.dirname(os.path.abspath(__file__))
    # A program must not find this folder when it searches for its modules.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != own]
    try:
        install(os.environ.get(VARIABLE))
    except Exception as error:
        sys.stderr.write(f"workbench: the kept code of the run cannot be used: {error}\n")
        os._exit(1)  # better than running other code silently
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    _start()
