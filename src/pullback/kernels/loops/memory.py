"""Reads: contiguous where the lane is, one element for all lanes elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pullback.define.math.index import Affine, at, undivide_range
from pullback.define.math.node import EQUAL, INSIDE, READ, Node, is_number
from pullback.kernels.loops import quotients
from pullback.kernels.loops.nest import KernelSetting
from pullback.kernels.loops.operands import Operand
from pullback.kernels.loops.packs import Packs
from pullback.kernels.loops.prefetch import Prefetch

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter


class KernelReads:
    """The reads of one kernel.

    Attributes:
        emitter: what writes it.
        dtypes: of the tensors in memory.
        picked: the dimensions in which data may give a place that is outside.
        notes_outside: whether the kernel says so of all of them.
        packs: neighbours that are read together.
        prefetch: what fetches rows before they are read.
    """

    def __init__(self, emitter: Emitter, setting: KernelSetting) -> None:
        self.emitter = emitter
        self.dtypes, self.picked = setting.dtypes, setting.picked
        self.notes_outside = setting.target.notes_outside
        self.packs = Packs(emitter)
        self.prefetch = Prefetch(emitter)
        # Copies of a statement ask the same again.
        self.proven: dict[tuple[Affine, Affine], bool] = {}

    def operand(self, node: Node, unit: int | None) -> Operand:
        """Return the tensor of a read with the layout that is required of it."""
        name = node.name
        dims = self.emitter.dims[name]
        packed: list[tuple[int, int]] = []
        # Of a ring not all steps are in memory, so that its strides do not follow from the sizes.
        is_whole = name not in self.emitter.rings
        if not self.emitter.target.needs_neighbours and unit == len(dims) - 1 and is_whole:
            # A GPU counts every address: a stride that is known costs nothing.
            for d in reversed(range(1, len(dims))):
                size = self.emitter.extents.number(dims[d])
                if size is None or not size:
                    break
                packed.append((d - 1, size * (packed[-1][1] if packed else 1)))
        known = bool(dims) and unit == len(dims) - 1 == len(packed)
        aligned = self.packs.alignment(name) if known else 1
        # Of the rows of a task that are side by side all read the same columns, at each step.
        is_input = unit is not None and name not in self.emitter.steps
        beside = self.emitter.tile if self.emitter.sequential else None
        is_spread = is_input and beside is not None and beside not in node.free
        dtype = self.dtypes[name]
        return Operand(name, unit, dtype, len(dims), tuple(packed), aligned, is_spread)

    def read(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return what loads the elements of a read."""
        if own := self.carried(node) or self.in_scratch(node, copy):
            return own
        guard, text = self.guard(node, copy), self.load(node, copy)
        if fetched := self.emitter.fetched:
            text = fetched.replace(node, copy, text)
        return f"({guard} ? {text} : 0)" if guard else text

    def carried(self, node: Node) -> str | None:
        """Return the variable of a lane's own state, some steps back; None if there is none."""
        if node.name not in self.emitter.carried:
            return None
        variable, most = self.emitter.carried[node.name]
        back = self.emitter.count_back(node)
        return f"{variable}_{back}" if back is not None and back <= most else None

    def in_scratch(self, node: Node, copy: Mapping[str, int]) -> str | None:
        """Return the element of a lane's own array; None if there is none."""
        if node.name not in self.emitter.scratch:
            return None
        variable, mask = self.emitter.scratch[node.name]
        step = node.places[self.emitter.steps[node.name]]
        return f"{variable}[({self.emitter.places.place(step, copy)}) & {mask}]"

    def guard(self, node: Node, copy: Mapping[str, int]) -> str | None:
        """Return whether a step of a scan that is read is one; None if that need not be asked.

        Where it is none, the nearest one is that which other threads write at the same time.
        """
        emitter, d = self.emitter, self.emitter.steps.get(node.name)
        if d is None or not emitter.target.guards_steps or node.name in emitter.rings:
            return None
        place = node.places[d]
        if place.nodes or self.is_inside(node, d):
            return None
        size = emitter.extents.text(emitter.dims[node.name][d])
        return f"inside({emitter.places.place(place, copy)}, {size})"

    def load(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return what loads the elements of a read at a step that is one."""
        lane = self.emitter.here.lane
        own = [d for d, place in enumerate(node.places) if lane is not None and lane in place.free]
        if not own:
            return self.packs.read(node, copy, None) or self.one(node, copy)
        if any(lane in part.free for d in own for part in node.places[d].nodes):
            return quotients.read(self, node, copy, own) or self.gathered(node, copy, own)
        if len(own) > 1:
            return self.diagonal(node, copy, own)
        place = node.places[own[0]]
        if place.factor(str(lane)) != 1:
            return self.apart(node, copy, own[0])
        return self.contiguous(node, copy, own[0])

    def one(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return one element for all lanes."""
        operand, address = self.find_one(node, copy)
        return f"load_one<{operand.stored}>({address})"

    def find_one(self, node: Node, copy: Mapping[str, int]) -> tuple[Operand, str]:
        """Return the tensor and the address of an element that all lanes read."""
        operand = self.operand(node, len(node.places) - 1 if node.places else None)
        places = [self.safe(node, d, copy) for d in range(len(node.places))]
        return operand, self.emitter.operands.address(operand, places)

    def contiguous(self, node: Node, copy: Mapping[str, int], own: int) -> str:
        """Return elements next to each other along a dimension."""
        emitter = self.emitter
        last = len(node.places) - 1
        # A state lies as the kernel writes it: there is no copy of it in which they are neighbours.
        is_written = node.name in emitter.steps
        if own != last and (is_written or not emitter.target.needs_neighbours):
            is_full = not emitter.here.edge and self.is_inside(node, own)
            pack = self.packs.read(node, copy, own) if is_full else None
            return pack or self.strided(node, copy, own)
        operand = self.operand(node, own)
        places = self.places(node, own, copy)
        address = emitter.operands.address(operand, places)
        if emitter.target.ahead and any(p.nodes for p in node.places):
            address = self.picked_row(node, operand, own, copy)
        if self.is_far(node) and not emitter.is_tiled:
            emitter.line("", emitter.target.far)
        self.prefetch.write_next(node, operand, own, address)
        if not emitter.here.edge and self.is_inside(node, own):
            return f"load<{operand.stored}>({address})"
        size = emitter.extents.text(emitter.dims[node.name][own])
        return f"load_edge<{operand.stored}>({address}, {places[own]}, {size})"

    def chosen(self, selection: Node, copy: Mapping[str, int]) -> str | None:
        """Return what loads the elements of one of two tensors, at an edge; None if both are read.

        The condition is the same in all lanes, as whether a step is the first, and they lie alike.
        """
        emitter, [condition, *reads] = self.emitter, selection.args
        is_shared = condition.op in {EQUAL, INSIDE} and not condition.places[0].nodes
        if not emitter.here.edge or not is_shared or emitter.here.lane in condition.free:
            return None
        found = [self.find_edge(read, copy) for read in reads]
        one, other = found
        if one is None or other is None or one[::2] != other[::2]:
            return None
        stored, _, (place, size) = one
        row = f"({emitter.constant_text(condition, copy)} ? {one[1]} : {other[1]})"
        address = f"{row} + ({place}) * int64_t{{sizeof({stored})}}"
        return f"load_edge<{stored}>({address}, {place}, {size})"

    def find_edge(
        self, node: Node, copy: Mapping[str, int]
    ) -> tuple[str, str, tuple[str, str]] | None:
        """Return what elements side by side are stored as, their row, and where; None if apart."""
        if node.op != READ or any(place.nodes for place in node.places):
            return None
        lane, last = str(self.emitter.here.lane), len(node.places) - 1
        own = [d for d, place in enumerate(node.places) if lane in place.free]
        if own != [last] or node.places[last].factor(lane) != 1 or self.carried(node):
            return None
        if self.in_scratch(node, copy) or self.guard(node, copy):
            return None
        operand, places = self.operand(node, last), self.places(node, last, copy)
        size = self.emitter.extents.text(self.emitter.dims[node.name][last])
        row = self.emitter.operands.address(operand, [*places[:last], "0"])
        return operand.stored, row, (places[last], size)

    def picked_row(self, node: Node, operand: Operand, own: int, copy: Mapping[str, int]) -> str:
        """Return the address of a vector in a row that data picks, whose own is a variable."""
        emitter = self.emitter
        lane = str(emitter.here.lane)
        first = {**copy, lane: 0}
        key = emitter.key(node, first)
        if key not in emitter.here.rows:
            places = self.places(node, own, first)
            self.prefetch.write_ahead(node, operand, places, copy)
            emitter.here.rows[key] = name = emitter.name("row")
            emitter.line(f"const char* const {name} = {emitter.operands.address(operand, places)};")
        vector, row = copy.get(lane, 0), emitter.here.rows[key]
        if vector and vector >= emitter.counts[lane] // 2 and emitter.backed == lane:
            return f"{row} + {self.count_bytes(operand, vector)}"
        return f"{row} + {vector} * vector_bytes<{operand.stored}>"

    def count_bytes(self, operand: Operand, vector: int) -> str:
        """Return how many bytes after a block's first vector another one begins."""
        lane = str(self.emitter.here.lane)
        ends = [self.emitter.places.index(lane, {lane: k}) for k in (vector, 0)]
        return f"({' - '.join(ends)}) * int64_t{{sizeof({operand.stored})}}"

    def strided(self, node: Node, copy: Mapping[str, int], own: int) -> str:
        """Return elements next to each other along a dimension that is not the last."""
        emitter = self.emitter
        emitter.line("", emitter.target.apart)
        operand = self.operand(node, len(node.places) - 1)
        places = self.places(node, own, copy)
        address = emitter.operands.address(operand, places)
        step = emitter.operands.step(operand, own)
        if not emitter.here.edge and self.is_inside(node, own):
            return f"load_strided<{operand.stored}>({address}, {step})"
        size = emitter.extents.text(emitter.dims[node.name][own])
        return f"load_apart<{operand.stored}>({address}, {step}, {places[own]}, 1, {size})"

    def places(self, node: Node, own: int, copy: Mapping[str, int]) -> list[str]:
        """Return the places of a read: that of the first lane, and those that all lanes share."""
        if node.places[own].nodes and (node.name, own) in self.picked:
            self.notes_outside = False  # only the lanes that are inside are read
        return [
            self.emitter.places.place(place, copy) if d == own else self.safe(node, d, copy)
            for d, place in enumerate(node.places)
        ]

    def apart(self, node: Node, copy: Mapping[str, int], own: int) -> str:
        """Return elements whose places are a number apart."""
        emitter = self.emitter
        factor = node.places[own].factor(str(emitter.here.lane))
        # Of a few vectors that lie one after the other, if they do.
        is_every = own == len(node.places) - 1 and factor in range(2, 5)
        emitter.line("", emitter.target.every * factor if is_every else emitter.target.gathered)
        operand = self.operand(node, None)
        places = self.places(node, own, copy)
        address = emitter.operands.address(operand, places)
        step = f"{emitter.operands.step(operand, own)} * {factor}"
        size = emitter.extents.text(emitter.dims[node.name][own])
        if is_every and emitter.target.needs_neighbours:
            kind = f"{operand.stored}, {factor}"
            return f"load_every<{kind}>({address}, {step}, {places[own]}, {size})"
        if not emitter.here.edge and self.is_inside(node, own):
            return f"load_strided<{operand.stored}>({address}, {step})"
        return f"load_apart<{operand.stored}>({address}, {step}, {places[own]}, {factor}, {size})"

    def is_apart(self, node: Node) -> bool:
        """Return whether the elements of a read lie a number apart that no vectors are made for."""
        lane, last = self.emitter.here.lane, len(node.places) - 1
        factors = {d: place.factor(lane or "") for d, place in enumerate(node.places)}
        return self.emitter.target.needs_neighbours and any(
            factor not in {0, 1} and not (d == last and factor in range(2, 5))
            for d, factor in factors.items()
        )

    def diagonal(self, node: Node, copy: Mapping[str, int], own: list[int]) -> str:
        """Return elements of which several places grow with the lane."""
        emitter = self.emitter
        lane = str(emitter.here.lane)
        factors = {d: node.places[d].factor(lane) for d in own}
        if any(node.places[d].nodes or abs(factors[d]) != 1 for d in own):
            return self.gathered(node, copy, own)
        emitter.line("", emitter.target.gathered)
        operand = self.operand(node, None)
        places = [
            emitter.places.place(place, copy) if d in own else self.safe(node, d, copy)
            for d, place in enumerate(node.places)
        ]
        address = emitter.operands.address(operand, places)
        step = " + ".join(f"{emitter.operands.step(operand, d)} * {factors[d]}" for d in own)
        if not emitter.here.edge and all(self.is_inside(node, d) for d in own):
            return f"load_strided<{operand.stored}>({address}, {step})"
        # The lanes in which all places are inside.
        first, last = "0", "lanes"
        if emitter.here.edge:
            last = f"@last - ({emitter.places.index(lane, copy)})"
        for d in own:
            if not self.is_proven(node, d):
                size, place = emitter.extents.text(emitter.dims[node.name][d]), f"({places[d]})"
                ends = f"-{place}", f"{size} - {place}"
                if factors[d] < 0:
                    ends = f"{place} - {size} + 1", f"{place} + 1"
                first, last = f"most({first}, {ends[0]})", f"least({last}, {ends[1]})"
        return f"load_part<{operand.stored}>({address}, {step}, {first}, {last})"

    def gathered(
        self, node: Node, copy: Mapping[str, int], own: list[int], cost: int | None = None
    ) -> str:
        """Return elements at places that the lanes say, along one dimension or several."""
        emitter = self.emitter
        emitter.line("", self.cost_of_gathering(len(own)) if cost is None else cost)
        operand = self.operand(node, None)
        places = ["0" if d in own else self.safe(node, d, copy) for d in range(len(node.places))]
        address = emitter.operands.address(operand, places)
        wholes = [self.wholes(node, d, copy) for d in own]
        steps = [emitter.operands.step(operand, d) for d in own]
        sizes = [emitter.extents.text(emitter.dims[node.name][d]) for d in own]
        if len(own) == 1:
            return f"load_at<{operand.stored}>({address}, {steps[0]}, {wholes[0]}, {sizes[0]})"
        offset = " + ".join(
            f"clamped({place}, {size}) * ({step})"
            for place, size, step in zip(wholes, sizes, steps, strict=True)
        )
        return f"load_at<{operand.stored}>({address}, 1, {offset}, INT64_MAX)"

    def cost_of_gathering(self, dims: int) -> float:
        """Return what a vector costs whose places several dimensions add up to."""
        emitter, target = self.emitter, self.emitter.target
        if not target.needs_neighbours:
            return target.gathered
        # Vectors multiply numbers of 64 bits in many steps; and of lanes that a row leaves empty
        # most processors have fewer.
        length = emitter.measure(emitter.ranges.size(str(emitter.here.lane))) or target.lanes
        return target.gathered * dims * (1 if length > target.lanes // 2 else 0.5)

    def wholes(self, node: Node, d: int, copy: Mapping[str, int]) -> str:
        """Return the place of each lane; beyond an edge, 0."""
        emitter = self.emitter
        place = f"Whole({emitter.places.whole(node.places[d], copy)})"
        if not emitter.target.notes_outside or (node.name, d) not in self.picked:
            return place
        if emitter.here.edge:
            lane = str(emitter.here.lane)
            left = f"@last - ({emitter.places.index(lane, copy)})"
            place = f"where(inside_lanes(0, {left}), {place}, Whole{{}})"
        size = emitter.extents.text(emitter.dims[node.name][d])
        return f"checked({place}, {size}, outside)"

    def is_proven(self, node: Node, d: int) -> bool:
        """Return whether a place is inside, whatever the sizes are."""
        size, fronts = self.emitter.dims[node.name][d], self.emitter.fronts
        if fronts and (node.places[d], size) == (fronts.place, fronts.extents[0]):
            return True
        # Of a tile that is not full some rows are beyond the last one.
        is_partial = self.emitter.here.edge and self.emitter.is_stacked
        if is_partial and self.emitter.tile in node.places[d].free:
            return False
        known = self.proven.get((node.places[d], size))
        if known is None:
            ranges = self.emitter.ranges
            inside = ranges.inside(node.places[d], ranges.follow(size), is_loop=True)
            known = self.proven[node.places[d], size] = is_number(inside, 1)
        return known

    def is_entry(self, node: Node, d: int) -> bool:
        """Return whether a place is that of an entry of a segment, which is inside."""
        emitter, place = self.emitter, node.places[d]
        indices = {name: i for each in emitter.segments for i, name in each.index_names()}
        if not place.nodes or any(
            part.op != READ or part.name not in indices for part in place.nodes
        ):
            return False
        runs = place.replaced({part: at(indices[part.name]) for part in place.nodes})
        return is_number(emitter.ranges.inside(runs, emitter.dims[node.name][d]), 1)

    def is_inside(self, node: Node, d: int) -> bool:
        """Return whether a place is inside here, perhaps by a test of the lane's loop."""
        if self.is_proven(node, d):
            return True
        place, size = undivide_range(node.places[d], self.emitter.dims[node.name][d])
        return self.emitter.places.certain(place, size)

    def safe(self, node: Node, d: int, copy: Mapping[str, int]) -> str:
        """Return a place that is the same in all lanes, moved to where there is an element."""
        emitter = self.emitter
        ring = emitter.rings.get(node.name)
        if (ring and ring[0] == d) or (
            emitter.steps.get(node.name) == d and self.guard(node, copy)
        ):
            # There is an element at any place of a ring, and nothing is read where a guard says so.
            return emitter.in_ring(node.name, d, emitter.places.place(node.places[d], copy))
        return self.clamped(node, d, copy)

    def clamped(self, node: Node, d: int, copy: Mapping[str, int]) -> str:
        """Return such a place, as an index of the tensor."""
        emitter = self.emitter
        place = emitter.places.place(node.places[d], copy)
        if not node.places[d].nodes and self.is_inside(node, d):
            return place
        if self.is_entry(node, d):
            return place
        size = emitter.extents.text(emitter.dims[node.name][d])
        if emitter.target.notes_outside and (node.name, d) in self.picked:
            return f"checked({place}, {size}, outside)"
        return f"clamped({place}, {size})"

    def is_far(self, node: Node) -> bool:
        """Return whether an inner loop strides over a tensor, where it could have run along it."""
        emitter = self.emitter
        if any(place.nodes for place in node.places):
            return False
        outer = emitter.places.lane_place()
        inner = emitter.scopes[(outer or 0) + 1 :]
        loops = frozenset[str]().union(*(scope.indices for scope in inner))
        return bool(node.free & loops)
