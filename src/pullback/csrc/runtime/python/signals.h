#pragma once

namespace pullback {

/// Installs handlers before the existing ones, once for the process.
void handle_signals();

}  // namespace pullback
