"""Reads a `.pt2` of torch.export without running code from it, for the importer and for PyTorch's worker.

torch.export passes the pickles of the file to `torch.load` and its sizes to `eval`. It also writes the names and guards
unchecked into the Python code that it generates from a graph and runs.
"""

# PyTorch's worker may have an older Python than the importer.
from __future__ import annotations

import ast
import builtins
import contextlib
import json
import pickle
import re
import warnings
import zipfile

import source
import sympy
import torch
from source import Refused

# Keys in a program of torch.export whose strings become names in the generated Python code.
NAMES = (
    *("name", "as_name", "fqn", "forward_arg_names", "parameter_name", "buffer_name"),
    *("tensor_constant_name", "custom_obj_name", "user_input_name"),
)
# A size of an input in the guards of such a program: `L['x'].size()[0]`.
SIZE = re.compile(r"L(\[('\w*'|\d+)\])+(\.(size|stride)\(\)\[\d+\]|\.storage_offset\(\))")
# The syntax that a formula may contain.
OPERATORS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
PLAIN = (ast.Expression, ast.Call, ast.keyword, ast.Load, ast.Name, ast.Constant, *OPERATORS)


def is_package(path, shown: str) -> bool:
    """Whether a `.pt2` contains native code of AOTInductor, which torch.export.load would load."""
    try:
        return any("/data/aotinductor/" in f"/{name}" for name in source.archive_names(path, shown))
    except zipfile.BadZipFile:
        return False


def load(path, shown: str, advice: str = "", is_trusted: bool = False):
    """The program, and remarks about what was left out of it. `shown` is its name in messages.

    Refuses a program that is not trusted if reading it would run code; `advice` says what to do then. The file must not
    be a package (`is_package`).
    """
    guard = contextlib.nullcontext([]) if is_trusted else without_code(shown, advice)
    with guard as refused, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.load(path)
        except MemoryError:
            raise
        except Exception as why:
            other = Refused(f"{shown} is not what torch.export.save writes: {source.first_line(why)}")
            raise (refused or [other])[0] from why
    return program, [] if is_trusted else without_guards_of_code(program, shown, advice)


def arguments_of(program):
    """The specifications of the positional and keyword arguments. Older releases have another name for the children of
    a specification."""
    spec = program.call_spec.in_spec
    if not spec:
        return (), ()
    return spec.children() if hasattr(spec, "children") else spec.children_specs


@contextlib.contextmanager
def without_code(shown: str, advice: str):
    """Makes torch.export accept only pickles of tensors, sizes that are formulas, and names that are words. Yields a
    list of refusals, because torch.export may turn them into other errors."""
    read, parse, decode, refused = torch.load, sympy.sympify, json.loads, []

    def refuse(why: Refused) -> Refused:
        refused.append(why)
        return why

    def tensors(file, *arguments, **named):
        try:
            check_inside(file, shown)
            return read(file, *arguments, **{**named, "weights_only": True})
        except pickle.UnpicklingError:
            raise refuse(Refused(f"{shown} has a pickle that would run code when it is read, and only tensors are read from it{advice}")) from None
        except Refused as why:
            raise refuse(why) from None

    def formula(text, *arguments, **named):
        if isinstance(text, str) and not is_formula(text):
            raise refuse(Refused(f"{shown} has a size that is not a formula, {text[:80]!r}, which would run as code{advice}"))
        return parse(text, *arguments, **named)

    def words(*arguments, **named):
        found = decode(*arguments, **named)
        for name in names_in(found):
            if not is_word(name):
                raise refuse(not_a_word(shown, name, advice))
        return found

    torch.load, sympy.sympify, json.loads = tensors, formula, words
    try:
        yield refused
    finally:
        torch.load, sympy.sympify, json.loads = read, parse, decode


def check_inside(file, shown: str) -> None:
    """Refuses an inner archive as the outer one would be: each pickle is an archive itself, which torch.export passes
    as an open file."""
    place = file.tell()
    try:
        source.archive_names(file, f"a file in {shown}")
    except zipfile.BadZipFile:
        # `torch.load` reports what is wrong with it.
        pass
    file.seek(place)


def without_guards_of_code(program, shown: str, advice: str) -> list[str]:
    """Removes the guards that are not formulas, which a module of the program would run as code. Returns remarks."""
    _, named = arguments_of(program)
    # The names of keyword inputs become code, too.
    for key in getattr(named, "context", None) or ():
        if not is_word(key):
            raise not_a_word(shown, key, advice)
    # Older releases of PyTorch have no guards.
    guards = getattr(program, "_guards_code", None) or []
    plain = [guard for guard in guards if is_formula(SIZE.sub("size", guard))]
    if len(plain) == len(guards):
        return []
    program._guards_code = plain
    return [f"without {len(guards) - len(plain)} of the export's guards, which are not formulas of sizes"]


def is_word(name) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[\w.\-]*", name) is not None


def not_a_word(shown: str, name, advice: str) -> Refused:
    return Refused(f"{shown} has a name that is not a word, {str(name)[:80]!r}, which would run as code{advice}")


def names_in(value):
    """The strings in a part of a program that become names in its code."""
    for part in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from names_in(part)
    for key in NAMES if isinstance(value, dict) else ():
        found = value.get(key)
        yield from (name for name in (found if isinstance(found, list) else [found]) if isinstance(name, str))


def is_formula(text: str) -> bool:
    """Whether a text has only numbers, symbols, operators and calls of functions that are not Python's builtins."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    words = names + [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    if not all(isinstance(node, PLAIN) for node in nodes) or any(hasattr(builtins, name) for name in names):
        return False
    return all(re.fullmatch(r"[\w.]+", word) and "__" not in word for word in words)


def operators_of(program):
    """The schema of each operator of a program, with its arguments by name."""
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema else []
        yield schema, {**dict(zip(names, node.args)), **node.kwargs}


def of_batch(program):
    """The first operator of a program that normalises with the batch's statistics instead of its own, or None."""
    norms = ((schema.name, given) for schema, given in operators_of(program) if schema and "batch_norm" in schema.name)
    return next((name for name, given in norms if given.get("training") is True and given.get("running_mean") is not None), None)


def dropping(program):
    """The first operator of a program that drops values at random, or None."""
    for schema, given in operators_of(program):
        if given.get("dropout_p") or given.get("train") is True and (given.get("p") or given.get("dropout")):
            return schema.name
    return None
