/// The parts of a library without Python: operators as data, registered when it is loaded.
///
/// `pullback build --as cmake` writes the data, `operators.cpp`; everything else is the runtime that
/// Python loads too.
#pragma once

#include "index_tables.h"

#include "../runtime/operator.h"

#include <torch/library.h>

#include <initializer_list>

namespace pullback {

/// How `torch.autocast` casts the inputs of an operator.
enum class Autocast { as_is, lower, float32, promote };

/// One operator of a library.
struct Built {
  const char* schema;
  Definition (*definition)();
  Autocast autocast = Autocast::as_is;
};

/// Registers all of them, or none: then the reason is raised in Python, or thrown.
void register_operators(torch::Library& library, std::initializer_list<Built> operators);

/// A loop, and the kind of call that it was compiled for.
struct BuiltLoop {
  Loops::Key key;
  CompiledLoop loop;
};

/// Gives a formula its loops; it will get no others. `derived`: whether its derivatives are in the
/// library too.
void finish_formula(Definition& definition, std::initializer_list<BuiltLoop> loops, bool derived);

/// Returns what gives a formula some loops, and says why there is no more.
std::shared_ptr<Supply> make_supply(std::vector<BuiltLoop> loops, bool derived);

/// Throws PB731: there are loops for these dtypes, and another was given.
[[noreturn]] void refuse_loop(const Signature& signature, at::ScalarType dtype,
                              const std::vector<at::ScalarType>& have);

/// The loops of an operator in index notation on each kind of device; null where there are none.
struct IndexTables {
  const IndexTable* cpu = nullptr;
  const IndexTable* cuda = nullptr;
};

/// Gives an operator in index notation its loops; `derived` as above. (indexed.cpp)
void finish_indexed(Definition& definition, const IndexTables& tables, bool derived);

// In meta.cpp and autocast.cpp.
c10::KernelFunction meta_kernel(const Entry& entry);
c10::KernelFunction autocast_kernel(const Entry& entry, Autocast policy, c10::DeviceType device);

}  // namespace pullback
