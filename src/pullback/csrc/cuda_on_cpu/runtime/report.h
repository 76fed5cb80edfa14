/// Errors as text, in the form of pullback's findings.
#pragma once

#include <stdexcept>
#include <string>

namespace cuda_on_cpu {

/// The exception that launches throw.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One line of evidence below the message.
struct Row {
  std::string key, value;
};

/// Formats "NAME [CODE]: message", then rows under each other. Lines of `text` after the first of
/// the form "    key: value" are rows too: those of `rows` come before them, and replace none.
std::string render(const std::string& text, const std::string& rule, const Row* rows, size_t count);

}  // namespace cuda_on_cpu
