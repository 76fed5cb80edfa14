/// The formulas of a library without Python: a loop that was not compiled ahead is an error.
#include "library.h"

#include <bit>

namespace pullback {

namespace {

class BuiltSupply final : public Supply {
 public:
  BuiltSupply(std::vector<BuiltLoop> loops, bool derived)
      : loops_(std::move(loops)), derived_(derived) {}

  /// Returns the loop for the call; or one that computes more outputs than the call asks for, and
  /// reads zeros for inputs that are None.
  const CompiledLoop& loop(const Signature& signature, const Formula& formula,
                           const Loops::Key& key) override {
    const BuiltLoop* best = nullptr;
    for (const BuiltLoop& built : loops_) {
      if (built.key.dtype != key.dtype || built.key.device != key.device) continue;
      if (key.wanted & ~built.key.wanted || key.present & ~built.key.present) continue;
      if (!best || size(built.key) < size(best->key)) best = &built;
    }
    if (!best) refuse(signature, key);
    return formula.loops->add(key, best->loop);
  }

  void complete(const Entry&, const char*) override {}

  void explain_missing(const Signature& signature) const override {
    if (derived_) return;
    fail("derivative-left-out [PB732]", signature,
         "its derivatives were left out of this library, which has those of formulas up to the "
         "second",
         "differentiate less often, or define the operator in Python, where every order is there");
  }

  const void* identity() const override { return this; }

 private:
  static int size(const Loops::Key& key) {
    return std::popcount(key.wanted) + std::popcount(key.present);
  }

  [[noreturn]] void refuse(const Signature& signature, const Loops::Key& key) const {
    std::vector<at::ScalarType> have;
    for (const BuiltLoop& built : loops_) {
      if (built.key.device == key.device) have.push_back(built.key.dtype);
    }
    refuse_loop(signature, key.dtype, have);
  }

  const std::vector<BuiltLoop> loops_;
  const bool derived_;
};

}  // namespace

std::shared_ptr<Supply> make_supply(std::vector<BuiltLoop> loops, bool derived) {
  return std::make_shared<BuiltSupply>(std::move(loops), derived);
}

void refuse_loop(const Signature& signature, at::ScalarType dtype,
                 const std::vector<at::ScalarType>& have) {
  std::string names;
  for (const at::ScalarType each : have) {
    const std::string name = dtype_text(each);
    const bool known = (", " + names + ",").find(", " + name + ",") != std::string::npos;
    if (!known) names += (names.empty() ? "" : ", ") + name;
  }
  fail("loop-left-out [PB731]", signature,
       "this library has no loop for " + dtype_text(dtype) + "; it has " + names,
       "convert the inputs");
}

void finish_formula(Definition& definition, std::initializer_list<BuiltLoop> loops, bool derived) {
  Formula& formula = *definition.formula;
  for (const BuiltLoop& built : loops) {
    (built.key.device == c10::DeviceType::CUDA ? formula.cuda : formula.cpu) = true;
    formula.loops->add(built.key, built.loop);
  }
  definition.supply = make_supply(loops, derived);
  formula.find_places(definition.signature);
}

}  // namespace pullback
