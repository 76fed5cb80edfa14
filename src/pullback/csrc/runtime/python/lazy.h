/// A formula whose derivatives are derived, and whose loops are compiled, by Python.
#pragma once

#include "python.h"

#include "../operator.h"

namespace pullback {

/// Kept for ever, as is every definition. Throws what Python raises.
class PythonSupply final : public Supply {
 public:
  PythonSupply(PyObject* request, PyObject* complete, PyObject* keep);

  const CompiledLoop& loop(const Signature& signature, const Formula& formula,
                           const Loops::Key& key) override;
  void complete(const Entry& entry, const char* kind) override;
  std::optional<size_t> keep(const Entry& entry, c10::ArrayRef<c10::IValue> arguments) override;
  const void* identity() const override { return complete_; }

 private:
  PyObject* const request_;
  PyObject* const complete_;
  PyObject* const keep_;
};

}  // namespace pullback
