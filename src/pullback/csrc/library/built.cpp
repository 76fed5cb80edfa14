/// The formulas of a library without Python: what was not compiled ahead is an error that says so.
#include "library.h"

#include <bit>

namespace pullback {

namespace {

class BuiltSupply final : public Supply {
 public:
  BuiltSupply(std::vector<BuiltLoop> loops, bool derived) : loops_(std::move(loops)), derived_(derived) {}

  /// Returns a loop that computes more than is asked for, where there is none for just that.
  const CompiledLoop& loop(const Signature& signature, const Formula& formula, const Loops::Key& key) override {
    const CompiledLoop* found = nullptr;
    for (const BuiltLoop& built : loops_) {
      Loops::Key same = built.key;
      same.wanted = key.wanted;
      const bool enough = same == key && !(key.wanted & ~built.key.wanted);
      if (enough && (!found || std::popcount(built.key.wanted) < std::popcount(found->wanted))) found = &built.loop;
    }
    if (!found) refuse(signature, key);
    return formula.loops->add(key, *found);
  }

  void complete(const Entry&, const char*) override {}

  void explain_missing(const Signature& signature) const override {
    if (derived_) return;
    fail("derivative-left-out [PB732]", signature,
         "its derivatives were left out of this library, which has those of formulas up to the second",
         "differentiate less often, or define the operator in Python, where every order is there");
  }

  const void* identity() const override { return this; }

 private:
  [[noreturn]] void refuse(const Signature& signature, const Loops::Key& key) const {
    std::string have;
    for (const BuiltLoop& built : loops_) {
      const std::string name = dtype_text(built.key.dtype);
      if (built.key.device == key.device && (", " + have + ",").find(", " + name + ",") == std::string::npos) {
        have += (have.empty() ? "" : ", ") + name;
      }
    }
    const bool known = (", " + have + ",").find(", " + dtype_text(key.dtype) + ",") != std::string::npos;
    fail("loop-left-out [PB731]", signature,
         known ? "this library has no loop for this choice of optional inputs"
               : "this library has no loop for " + dtype_text(key.dtype) + "; it has " + have,
         known ? "pass all of them, or none" : "convert the inputs");
  }

  const std::vector<BuiltLoop> loops_;
  const bool derived_;
};

}  // namespace

void finish_formula(Definition& definition, std::initializer_list<BuiltLoop> loops, bool derived) {
  Formula& formula = *definition.formula;
  for (const BuiltLoop& built : loops) {
    (built.key.device == c10::DeviceType::CUDA ? formula.cuda : formula.cpu) = true;
    formula.loops->add(built.key, built.loop);
  }
  formula.supply = std::make_shared<BuiltSupply>(loops, derived);
  formula.find_places(definition.signature);
}

}  // namespace pullback
