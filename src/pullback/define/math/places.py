"""Reads what is between brackets: the indices that a statement may use, and sums of them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NoReturn

from pullback.define.math.facts import Fact
from pullback.define.math.functions import CONSTANTS
from pullback.define.math.grammar import UnknownFormulaName
from pullback.define.math.index import BATCH, Affine, at
from pullback.define.math.language import Reader
from pullback.define.math.node import Node, place_of
from pullback.define.math.subscripts import (
    Access,
    FormulaProgram,
    Index,
    NotAffine,
    Open,
    TakenIndex,
    UnknownIndex,
    UnreadIndex,
    WrongSubscripts,
    has_index,
    is_batch,
    is_data,
    is_limit,
)
from pullback.diagnostic import Rule, did_you_mean

REDUCTIONS = ("sum", "max", "min", "mean", "argmax")
REASONS: Mapping[type[ast.AST], str] = {
    ast.Mult: "two indices are multiplied",
    ast.FloorDiv: "an index is divided by what is no number above 0",
    ast.Mod: "an index is taken modulo what is no number above 0",
    ast.Pow: "an index is raised to a power",
}


class PlaceReader(Reader):
    """Reads the indices of one statement.

    Attributes:
        program: what it shares with the other statements.
        scope: the indices that may be used, by name.
        open: for a part of the formula: the tree that owns the indices it turns out to depend on,
            its `parameters`, and the names between brackets in it.
        part: for any part: the reads that have to be checked where the part is used.
        unread: the indices of reductions that nothing has been read at yet.
        alone: the tensors that have been read by their name alone, in the order of their reads.
    """

    def __init__(
        self,
        text: str,
        program: FormulaProgram,
        number: int,
        open: tuple[ast.AST, set[str]] | None = None,
    ) -> None:
        super().__init__(text, program.names, program.of)
        self.program = program
        self.number = number
        self.open = open
        self.scope: dict[str, Index] = {}
        self.parameters: dict[str, Index] = {}
        self.facts: list[Fact] = []
        self.weak = 0
        self.part: Open | None = None
        self.outside: list[Node] | None = None  # the guards of the read that is padded
        self.unread: list[Index] = []
        self.alone: list[str] = []
        self.cures: dict[str, str] = {}  # for names that one might take for an index here

    def fail(self, rule: Rule, message: str, tree: ast.AST, help: str | None = None) -> NoReturn:
        """Stop at a tree."""
        shown = self.shown(tree) if isinstance(tree, ast.expr) else None
        raise rule.error(f"{self.of}: {message}", at=shown, help=help)

    def find(self, name: str, *, of: str | None = None) -> Index | None:
        """Return the index of a name, if there is one here; `of` is the tensor that implies it."""
        found = self.scope.get(name) or self.parameters.get(name)
        if found is not None or self.open is None:
            self.unread = [index for index in self.unread if index is not found]
            return found
        owner, bracketed = self.open
        if name not in bracketed and name not in self.program.declared:
            return None
        if of is None and name in self.program.definitions:
            return None
        if name in CONSTANTS and name not in bracketed:
            return None
        binder = f"{self.text.partition('=')[0].strip()}[{name}] = ..."
        found = self.program.parameter(owner, name, binder)
        self.parameters[name] = found
        return found

    def index(self, name: str, tree: ast.expr, *, of: str | None = None) -> Index:
        """Return the index of a name, or stop."""
        if self.open is not None and of is not None:
            self.open[1].add(name)
        return self.find(name, of=of) or self.unknown(name, tree, of)

    def unknown(self, name: str, tree: ast.expr, of: str | None = None) -> NoReturn:
        """Stop at an index that nothing binds here."""
        known = sorted({**self.scope, **self.parameters})
        if of is not None and name.endswith("'"):
            # The second dimension of this name: a formula cannot write its label.
            plain = ", ".join(label.rstrip("'") for label in self.program.labels_of(of))
            message = f"'{of}' has two dimensions '{name.rstrip(chr(39))}'"
            cure = f"say which element is meant: {of}[{plain}] is one of the diagonal"
            self.fail(UnknownIndex, message, tree, cure)
        if of is not None:
            named = f"{of}[{', '.join(self.program.labels_of(of))}]"
            cure = f"sum over it, sum[{name}](...), or give the output this dimension"
            cure = self.cures.get(name) or self.meant(of, self.unread) or cure
            message = f"'{of}' is {named}, and '{name}' is no index here"
            self.fail(UnknownIndex, message, tree, cure)
        is_dimension = any(name in own for own in self.program.labels.values())
        if is_dimension or name in self.program.declared or name in self.program.results:
            cure = f"bind it, sum[{name}](...), or give the output this dimension"
            if self.part is not None and self.open is None:
                cure = f"bind it, sum[{name}](...), or name it before the '=' of this part"
            cure += f"; size({name}) is how many" if is_dimension else ""
            cure = self.cures.get(name, cure)
            self.fail(UnknownIndex, f"'{name}' is no index here", tree, cure)
        cure = did_you_mean(name, known) or f"bind it, sum[{name}](...), or name it in the output"
        have = ", ".join(known) or "none"
        raise UnknownIndex.error(
            f"{self.of}: there is no index '{name}'", at=self.shown(tree), have=have, help=cure
        )

    def require_read(
        self, indices: list[Index], tree: ast.Call, alone: Sequence[str], reads: Sequence[Access]
    ) -> None:
        """Stop at a reduction that reads something, but nothing at some of its indices.

        `mean[k](x**2)` is meant as `mean[k](x[k]**2)`, and not as x[n]**2. If the element and the
        limit of k are written, `sum[k < 3](x[n])`, it is meant as it stands.
        """
        left = [index for index in indices if index in self.unread]
        self.unread = [index for index in self.unread if index not in indices]
        if not alone:
            left = [index for index in left if index.extent is None]
        if not left or not (alone or reads):
            return
        names = " and ".join(f"'{index.name}'" for index in left)
        name = alone[0] if alone else reads[0].name
        whole = f"{name}[{', '.join(self.program.labels_of(name))}]".replace("'", "")
        why = f"'{name}' alone is {whole}" if alone else f"{reads[0].shown} is the same at each"
        message = f"nothing in {self.shown(tree)} is read at {names}: {why}"
        cure = self.meant(name, left) or f"give '{name}' an index of its own: {name}[..., n]"
        self.fail(UnreadIndex, message, tree, cure)

    def meant(self, name: str, unread: Sequence[Index]) -> str | None:
        """Return how a tensor is read at the indices of a reduction: `write x[n, k]`."""
        names = [index.name for index in unread]
        labels = self.program.labels_of(name)
        own = [place for place, label in enumerate(labels) if label != BATCH]
        if not names or len(names) > len(own):
            return None
        choices = [own[-len(names) :], *([place] for place in own[-2::-1] if len(names) == 1)]
        shown = list[str]()
        for places in choices:
            others = dict(zip(places, names, strict=True))
            plain = [others.get(place, label) for place, label in enumerate(labels)]
            shown.append(f"{name}[{', '.join(plain)}]".replace("'", ""))
        return f"write {' or '.join(shown)}"

    def over(self, name: str, tree: ast.Call) -> str:
        """Return the reduction that `sum(x)` means: over what the output lacks, or a new index."""
        if not tree.args:
            return f"{name}[k](...)"
        body = tree.args[0]
        bracketed = {id(part.value) for part in ast.walk(body) if isinstance(part, ast.Subscript)}
        names = [part for part in ast.walk(body) if isinstance(part, ast.Name)]
        read = [each for each in names if self.program.labels.get(each.id)]
        labels = dict.fromkeys(label for each in read for label in self.program.labels[each.id])
        summed = [each for each in labels if each not in self.scope and not each.endswith("'")]
        shown = self.shown(body).encode()
        for each in sorted(read, key=lambda each: -each.col_offset) if not summed else ():
            if id(each) not in bracketed:
                start = each.col_offset - body.col_offset
                own = [*self.program.labels[each.id][:-1], "k"]
                meant = f"{each.id}[{', '.join(own)}]".encode()
                shown = shown[:start] + meant + shown[start + len(each.id.encode()) :]
        return f"{name}[{', '.join(summed) or 'k'}]({shown.decode()})"

    def bind(self, tree: ast.expr, binder: str) -> Index:
        """Return the index that `i` or `i < 5` binds, and put it in scope."""
        name, limit = self.binding(tree)
        if name in self.scope or name in self.parameters:
            cure = "give this one another name, k, and read at it what it runs over: x[k]"
            self.fail(TakenIndex, f"'{name}' is an index already", tree, cure)
        if taken := self.program.is_taken(name):
            self.fail(TakenIndex, f"'{name}' is {taken}", tree, "give the index another name")
        if name == BATCH and BATCH not in self.program.declared:
            self.fail(UnknownIndex, "no input has '...'", tree)
        found = self.program.index(tree, name, binder, limit)
        if limit is not None:
            found.limit = (self.number, tree.col_offset, tree.end_col_offset or 0)
        self.scope[name] = found
        return found

    def binding(self, tree: ast.expr) -> tuple[str, Affine | None]:
        """Return the name and the limit of `i` or `i < 5`."""
        match tree:
            case ast.Name(id=name):
                return name, None
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt()], comparators=[limit]):
                return name, self.limit(limit)
            case _ if is_batch(tree):
                return BATCH, None
            case _:
                cure = "write a name, or a name and its limit: k < size(n) - 1"
                self.fail(NotAffine, "this binds no index", tree, cure)

    def limit(self, tree: ast.expr) -> Affine:
        """Return how far an index runs, as it is written."""
        place = self.place(tree)
        if not is_limit(place, self.program.declared):
            cure = "such as k < 5, k < size(n) - 1, or k < steps of an int scalar"
            message = "a limit is made of numbers, the inputs' sizes and int scalars"
            self.fail(NotAffine, message, tree, cure)
        if not place.terms and place.constant < 0:
            self.fail(NotAffine, "a limit is not below zero", tree)
        return place

    def no_tensor(self, name: str, tree: ast.expr) -> NoReturn:
        """Stop at indices after a name that has none."""
        known = [*self.program.labels, *self.program.definitions]
        if name in self.names:
            self.fail(WrongSubscripts, f"'{name}' is a scalar and has no indices", tree)
        if name in REDUCTIONS:
            cure = f"write {self.shown(tree)}(...)"
            self.fail(WrongSubscripts, f"'{name}' is a reduction of nothing", tree, cure)
        raise UnknownFormulaName.error(
            f"{self.of}: '{name}' is not defined",
            at=self.shown(tree),
            have=", ".join(known),
            help=did_you_mean(name, known),
        )

    def places(
        self, tree: ast.expr, name: str, labels: Sequence[str], subscripts: list[ast.expr]
    ) -> list[Affine]:
        """Return the indices between brackets, with `...` in its place if it is left out."""
        count, batch = len(labels), labels.index(BATCH) if BATCH in labels else None
        written = [place for place, each in enumerate(subscripts) if is_batch(each)]
        missing = batch is not None and len(subscripts) == count - 1 and not written
        if (len(subscripts) != count and not missing) or (written and written != [batch]):
            wants = count - (batch is not None)
            has = f"'{name}' has {wants} {'index' if wants == 1 else 'indices'}"
            self.fail(WrongSubscripts, f"{has}, as in {name}[{', '.join(labels)}]", tree)
        meant = [self.batch(each) if is_batch(each) else self.place(each) for each in subscripts]
        if batch is not None and not missing and meant[batch].index is None:
            self.fail(WrongSubscripts, f"the batch dimensions of '{name}' have no places", tree)
        if missing:
            meant.insert(batch or 0, at(self.index(BATCH, tree, of=name).key))
        return meant

    def batch(self, tree: ast.expr) -> Affine:
        """Return the batch dimensions, `...`."""
        return at(self.index(BATCH, tree).key)

    def place(self, tree: ast.expr) -> Affine:  # noqa: PLR0911  (one for each kind of tree)
        """Return an affine index."""
        match tree:
            case ast.Constant(value=value) if type(value) is int:
                return Affine(int(self.literal(value, tree).number))
            case ast.Name(id=name) if name not in self.names and (found := self.find(name)):
                return at(found.key)
            case ast.Name(id=name) if (
                name not in self.names and name not in self.program.definitions
            ):
                self.unknown(name, tree)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.place(operand)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.place(left) + self.place(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.place(left) - self.place(right)
            case ast.BinOp(left=ast.Constant(value=int() as many), op=ast.Mult(), right=right) | (
                ast.BinOp(left=right, op=ast.Mult(), right=ast.Constant(value=int() as many))
            ):
                return self.place(right) * many
            case ast.BinOp(
                left=left,
                op=ast.FloorDiv() | ast.Mod() as op,
                right=ast.Constant(value=int() as by),
            ) if by > 0:
                dividend = self.place(left)
                if not is_data(dividend):
                    whole = self.program.ranges.divide(dividend, by)
                    return whole if isinstance(op, ast.FloorDiv) else dividend - whole * by
            case ast.Slice():
                self.not_affine("a part of a tensor has no name of its own", tree)
            case _:
                pass
        return self.data(tree)

    def data(self, tree: ast.expr) -> Affine:
        """Return an index that is more than a sum of others: a multiple of one, or data."""
        value = self.expression(tree)
        if value.type != "int":
            kind = "a condition" if value.type == "bool" else "a real number"
            self.not_affine(f"an index is a whole number, and this is {kind}", tree)
        place = place_of(value)
        if any(has_index(part) for part in place.nodes) and isinstance(tree, ast.BinOp):
            self.not_affine(REASONS.get(type(tree.op), "it is no sum of multiples"), tree)
        return place

    def not_affine(self, reason: str, tree: ast.expr) -> NoReturn:
        """Stop at something that is no index."""
        cure = "indices are sums of multiples, 2*i + k - 1, and quotients, i//2, or an int tensor's"
        names = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}
        if name := next(iter(sorted(names & self.program.states.keys())), None):
            cure += f"; '{name}' may be one as an output, {name}[...]: int64"
        self.fail(NotAffine, f"this cannot be an index: {reason}", tree, cure)
