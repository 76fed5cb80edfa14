/// The sizes of one call of an operator in index notation, and what has to hold of them.
#pragma once

#include "index_tables.h"

#include "../runtime/signature.h"

namespace pullback {

/// In the order of `Extent`; -1 is unknown: its dimension is only in inputs that are None.
using CallSizes = c10::SmallVector<int64_t, 16>;

/// Evaluates a number whose sizes are known.
int64_t evaluate(const Extent& extent, const CallSizes& sizes);

Ints evaluate(const Table<Extent>& shape, const CallSizes& sizes);

/// Throws PB156 unless the int scalars that say how far indices run are 0 or more.
void require_counts(const Signature& signature, const IndexTable& table,
                    c10::ArrayRef<c10::IValue> arguments);

/// Finds every size of a call. Throws PB112 where a dimension is not as large as the formula needs,
/// and unless every read stays inside its tensor, PB141 or PB148.
CallSizes find_sizes(const Signature& signature, const IndexTable& table, const Sizes& sizes,
                     c10::ArrayRef<c10::IValue> arguments, uint64_t wanted);

}  // namespace pullback
