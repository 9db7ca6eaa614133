"""The cost of a program of XLA's TPU compiler, read from its text.

XLA's own summary (`cost_analysis`) counts the body of a loop once, as if a model had one layer, and
knows nothing of the passes that a float32 product takes. The text has what is needed: every
instruction at the top of a computation with the cycles that the compiler expects, the memory that
each array lies in, and the loops. Transfers between chips and asynchronous copies have no cycles.
"""

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping

_COLLECTIVES = (
    'all-gather', 'all-reduce', 'all-to-all', 'collective-permute', 'reduce-scatter',
)  # fmt: skip
# Instructions that move nothing, or whose work is that of another one.
_FREE = (
    'parameter', 'get-tuple-element', 'tuple', 'bitcast', 'constant', 'while', 'call',
    'after-all', 'partition-id', 'iota',
)  # fmt: skip
_SHAPE = re.compile(r'([a-z]\w*)\[([\d,]*)\](?:\{([^}]*)\})?')
_HEADER = re.compile(r'(ENTRY )?%([\w.\-]+) \(.*\{$')
_LINE = re.compile(r'\s+(ROOT )?%([\w.\-]+) = (.*)$')
_WINDOW = re.compile(r'window=\{([^}]*)\}')


@dataclasses.dataclass(frozen=True)
class Shape:
    """An array on one chip.

    Attributes:
      dtype: Its type, as XLA calls it.
      dims: Its sizes.
      layout: Its layout: the axes from the innermost on, tiles, and the memory.
    """

    dtype: str
    dims: tuple[int, ...]
    layout: str

    @property
    def in_main_memory(self) -> bool:
        """Whether it lies in the chip's main memory (HBM) and not beside its processor."""
        return not re.search(r'S\([1-9]', self.layout)

    @property
    def bytes(self) -> int:
        """Its size in memory, filled up to whole tiles."""
        order, _, rest = self.layout.partition(':')
        tile = re.match(r'T\(([\d,]+)\)', rest)
        sizes = [self.dims[int(axis)] for axis in order.split(',') if axis]
        for place, unit in enumerate(reversed(tile[1].split(',') if tile else [])):
            if place < len(sizes):
                sizes[place] = -(-sizes[place] // int(unit)) * int(unit)
        return math.prod(sizes) * _item_bytes(self.dtype)


def _item_bytes(dtype: str) -> int:
    if dtype == 'pred':
        return 1
    bits = re.search(r'\d+', dtype)
    return max(int(bits[0]) // 8, 1) if bits else 0


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
      name: Its name.
      opcode: The operation that it does.
      shapes: The arrays that it makes.
      operands: The names of the instructions that it reads.
      literal: The text in their place: the number of a parameter, or a constant.
      rest: Everything after the operands.
      is_root: Whether its computation returns it.
    """

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    literal: str
    rest: str
    is_root: bool

    @property
    def cycles(self) -> int:
        """The cycles that the compiler expects it to take; 0 where it says nothing."""
        found = re.search(r'"estimated_cycles":"(\d+)"', self.rest)
        return int(found[1]) if found else 0

    @property
    def source(self) -> str:
        """The JAX operation that it comes from."""
        found = re.search(r'op_name="([^"]*)"', self.rest)
        return found[1] if found else ''

    def called(self, attribute: str) -> str | None:
        """Return the name of the computation that it calls as `attribute`."""
        found = re.search(rf'\b{attribute}=%([\w.\-]+)', self.rest)
        return found and found[1]


Computation = Mapping[str, Instruction]


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of one run of a program on one chip.

    Attributes:
      operations: Multiplications and additions of its matrix products, two for each pair.
      bytes: The bytes that its instructions read from and write to the main memory.
      cycles: The cycles that the compiler expects.
      collectives: By kind of transfer between chips, their number and their bytes.
      largest_gather: The bytes of the largest result of an all-gather.
      one_pass: The number of float32 products that are rounded to bfloat16.
      products: The cycles of instructions that have matrix products, and may do more.
      copies: The cycles of instructions that only change the layout of an array.
      slowest: The JAX operations that take most cycles, with their cycles.
    """

    operations: float
    bytes: float
    cycles: float
    collectives: Mapping[str, tuple[int, int]]
    largest_gather: int
    one_pass: int
    products: float
    copies: float
    slowest: tuple[tuple[str, float], ...]


def read_cost(text: str) -> Cost:
    """Return the cost of a compiled program from its text (`Compiled.as_text()`)."""
    module = Module.read(text)
    cycles, collectives = collections.Counter(), {}
    moved = multiplied = copies = gathered = 0
    for times, computation, each in module.executed():
        cycles[each.source or each.name] += times * each.cycles
        moved += times * module.bytes(computation, each)
        if each.opcode == 'copy':
            copies += times * each.cycles
        if any(_is_product(found) for _, found in module.within(computation, each)):
            multiplied += times * each.cycles
        kind = each.opcode.removesuffix('-start')
        if kind in _COLLECTIVES:
            size = sum(shape.bytes for shape in each.shapes)
            number, total = collectives.get(kind, (0, 0))
            collectives[kind] = number + times, total + times * size
            if kind == 'all-gather':
                gathered = max(gathered, *(shape.bytes for shape in each.shapes))
    products = list(module.products())
    return Cost(
        operations=sum(times * _operations(inside, each) for times, inside, each in products),
        bytes=moved,
        cycles=cycles.total(),
        collectives=collectives,
        largest_gather=gathered,
        one_pass=sum(_is_one_pass(inside, each) for _, inside, each in products),
        products=multiplied,
        copies=copies,
        slowest=tuple(cycles.most_common(5)),
    )


@dataclasses.dataclass(frozen=True)
class Module:
    """The computations of a program, and the name of the one that is run."""

    computations: Mapping[str, Computation]
    entry: str

    @classmethod
    def read(cls, text: str) -> 'Module':
        """Read a program.

        Raises:
          ValueError: The text has no entry computation.
        """
        computations, entry, inside = {}, None, None
        for line in text.splitlines():
            if header := _HEADER.match(line):
                inside = computations[header[2]] = {}
                entry = header[2] if header[1] else entry
            elif line == '}':
                inside = None
            elif inside is not None and (found := _LINE.match(line)):
                inside[found[2]] = _instruction(found[2], found[3], bool(found[1]))
        if entry is None:
            raise ValueError('This is no text of a compiled program: no computation is its entry.')
        return cls(computations, entry)

    def executed(
        self, name: str | None = None, times: int = 1
    ) -> Iterator[tuple[int, Computation, Instruction]]:
        """Yield how often each instruction is run, its computation and the instruction.

        Args:
          name: The computation; None is the whole program.
          times: How often it is run.
        """
        computation = self.computations[name or self.entry]
        for each in computation.values():
            yield times, computation, each
            if each.opcode == 'while':
                rounds = self._rounds(each.called('condition'))
                yield from self.executed(each.called('body'), times * rounds)
            elif each.opcode == 'call':
                yield from self.executed(each.called('to_apply'), times)

    def products(self) -> Iterator[tuple[int, Computation, Instruction]]:
        """Yield the matrix products, those inside of fusions too, as `executed` does."""
        for times, computation, each in self.executed():
            for inside, found in self.within(computation, each):
                if _is_product(found):
                    yield times, inside, found

    def bytes(self, computation: Computation, each: Instruction) -> int:
        """Return the bytes of main memory that an instruction reads and writes."""
        if each.opcode in _FREE or each.opcode.endswith('-done') or 'AllocateBuffer' in each.rest:
            return 0
        if each.opcode.endswith('-start'):
            # An array and its copy, or the slice of it that is copied.
            ends = each.shapes[:2]
            size = min(shape.bytes for shape in ends)
            return size * sum(shape.in_main_memory for shape in ends)
        written = sum(shape.bytes for shape in each.shapes if shape.in_main_memory)
        called = each.called('calls')
        if called and (changed := self._changed(called)) is not None:
            # Changed in place.
            written = min(written, changed)
        read = 0
        for place, operand in enumerate(each.operands):
            for shape in computation[operand].shapes:
                if shape.in_main_memory:
                    read += self._read(each, place, shape.bytes)
        return written + read

    def _rounds(self, condition: str) -> int:
        """Return how often a loop is run: the constant that its counter is compared with."""
        numbers = [
            int(each.literal)
            for each in self.computations[condition].values()
            if each.opcode == 'constant' and each.shapes[0].dtype == 's32'
        ]
        return max(numbers, default=1)

    def within(
        self, computation: Computation, each: Instruction
    ) -> Iterator[tuple[Computation, Instruction]]:
        """Yield an instruction of a computation, and those inside of it if it is a fusion."""
        yield computation, each
        called = each.called('calls')
        if called:
            inside = self.computations[called]
            for found in inside.values():
                yield from self.within(inside, found)

    def _read(self, each: Instruction, place: int, whole: int) -> int:
        """Return the bytes that are read of an operand of `whole` bytes."""
        if each.opcode in ('dynamic-slice', 'slice', 'gather') and place == 0:
            return min(whole, sum(shape.bytes for shape in each.shapes))
        if each.opcode == 'dynamic-update-slice' and place == 0:
            return 0
        called = each.called('calls')
        if not called:
            return whole
        inside = self.computations[called].values()
        (parameter,) = (
            found.name
            for found in inside
            if found.opcode == 'parameter' and found.literal == str(place)
        )
        return min(
            whole,
            sum(
                self._read(user, at, whole)
                for user in inside
                for at, operand in enumerate(user.operands)
                if operand == parameter
            ),
        )

    def _changed(self, name: str) -> int | None:
        """Return the bytes of the slice that a fusion writes into an array; None writes it all."""
        computation = self.computations[name]
        root = next(each for each in computation.values() if each.is_root)
        while root.opcode == 'bitcast':
            root = computation[root.operands[0]]
        if root.opcode == 'fusion':
            return self._changed(root.called('calls'))
        if root.opcode != 'dynamic-update-slice':
            return None
        return computation[root.operands[1]].shapes[0].bytes


def _instruction(name: str, text: str, is_root: bool) -> Instruction:
    kind, text = _split(text) if text.startswith('(') else text.split(' ', 1)
    opcode, _, text = text.strip().partition('(')
    operands, rest = _split('(' + text)
    named = re.findall(r'%([\w.\-]+)', operands)
    shapes = tuple(
        Shape(dtype, tuple(int(size) for size in dims.split(',') if size), layout)
        for dtype, dims, layout in _SHAPE.findall(kind)
    )
    return Instruction(name, opcode, shapes, tuple(named), operands[1:-1], rest, is_root)


def _split(text: str) -> tuple[str, str]:
    """Split after the bracket that closes the first one."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == '(') - (character == ')')
        if not depth:
            return text[: place + 1], text[place + 1 :]
    raise ValueError(f'A bracket is not closed: {text[:80]!r}.')


def _is_product(each: Instruction) -> bool:
    return each.opcode in ('convolution', 'dot')


def _is_one_pass(computation: Computation, each: Instruction) -> bool:
    floats = [computation[name].shapes[0].dtype == 'f32' for name in each.operands]
    return all(floats) and 'operand_precision={highest' not in each.rest


def _operations(computation: Computation, each: Instruction) -> int:
    """Return the operations of a product; the compiler spells batches as windows of convolutions.

    A window has places that lie in padding or between the rows of a dilated operand; those do not
    count.
    """
    left, right = (computation[name].shapes[0].dims for name in each.operands)
    if each.opcode == 'dot':
        axes = re.search(r'lhs_contracting_dims=\{([\d,]*)\}', each.rest)[1]
        return 2 * math.prod(each.shapes[0].dims) * math.prod(left[int(a)] for a in axes.split(','))
    labels = re.search(r'dim_labels=(\w+)_(\w+)->(\w+)', each.rest)
    of_left, of_right, of_result = labels.groups()
    result = each.shapes[0].dims
    window = _window(each.rest)
    count = 2 * result[of_result.index('b')] * math.prod(right[of_right.index(a)] for a in 'io')
    for axis in range(len(window['size'])):
        count *= _places(
            left[of_left.index(str(axis))],
            result[of_result.index(str(axis))],
            *(window[name][axis] for name in ('size', 'stride', 'low', 'lhs_dilate', 'rhs_dilate')),
        )
    return count


def _window(text: str) -> dict[str, list[int]]:
    found = _WINDOW.search(text)
    given = dict(part.split('=') for part in found[1].split()) if found else {}
    size = [int(each) for each in given['size'].split('x')] if given else []

    def numbers(name, default):
        return [int(each) for each in given[name].split('x')] if name in given else default

    ones = [1] * len(size)
    low = [int(each.split('_')[0]) for each in given['pad'].split('x')] if 'pad' in given else None
    return {
        'size': size,
        'stride': numbers('stride', ones),
        'low': low or [0] * len(size),
        'lhs_dilate': numbers('lhs_dilate', ones),
        'rhs_dilate': numbers('rhs_dilate', ones),
    }


@functools.cache
def _places(length, count, size, stride, low, dilation, spread) -> int:
    """Return how many pairs of a result's place and a window's place meet an element."""
    found = 0
    for result in range(count):
        for inside in range(size):
            place, between = divmod(result * stride - low + inside * spread, dilation)
            found += between == 0 and 0 <= place < length
    return found
