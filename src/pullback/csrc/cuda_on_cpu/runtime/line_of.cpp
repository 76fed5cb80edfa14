#include "line_of.h"

#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>

namespace cuda_on_cpu {
namespace {

/// An address within the file of a program or library.
struct InFile {
  uintptr_t pc;
  std::string file;
  uintptr_t address = 0;
};

int find_segment(dl_phdr_info* object, size_t, void* wanted) {
  auto& found = *static_cast<InFile*>(wanted);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    const uintptr_t start = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || found.pc - start >= segment.p_memsz) continue;
    // The program itself has no name here.
    found.file = *object->dlpi_name ? object->dlpi_name : "/proc/self/exe";
    found.address = found.pc - object->dlpi_addr;
    return 1;
  }
  return 0;
}

InFile in_file(const void* pc) {
  // The byte before: a return address may already belong to the next line.
  InFile found{reinterpret_cast<uintptr_t>(pc) - 1, {}};
  dl_iterate_phdr(find_segment, &found);
  if (found.file == "/proc/self/exe") {
    // addr2line would read it as itself.
    std::error_code error;
    found.file = std::filesystem::read_symlink(found.file, error).string();
  }
  return found;
}

/// Without what a sanitizer preloads, which the child must not inherit.
std::vector<char*> environment_of_child() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

std::string read_all(int from) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t count = read(from, buffer, sizeof buffer);
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
  }
}

/// The output of a command; "" if it cannot be started.
std::string output_of(std::vector<std::string> command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return {};
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child;
  const auto environment = environment_of_child();
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  if (!failed) {
    text = read_all(ends[0]);
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  return text;
}

bool starts_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

/// The folder of this library's headers, which are compiled into the author's code.
const std::string& our_folder() {
  const auto file = std::filesystem::path(__FILE__).lexically_normal();
  static const std::string folder = (file.parent_path().parent_path() / "").string();
  return folder;
}

/// "/folder/add.cu:12 (discriminator 3)" as "/folder/add.cu:12"; "" if it is not the author's.
std::string of_the_author(std::string line) {
  line.resize(std::min(line.size(), line.find(" (discriminator")));
  const size_t colon = line.rfind(':');
  if (colon == std::string::npos || line[0] == '?') return {};
  const std::string number = line.substr(colon);
  if (number == ":?" || number == ":0") return {};
  const auto file = std::filesystem::path(line.substr(0, colon)).lexically_normal().string();
  for (const std::string& other : {our_folder(), {"/usr/include/"}, {"/usr/lib/"}}) {
    if (starts_with(file, other)) return {};
  }
  // "source of demo::add2", by a #line, is no path; addr2line puts a folder before it.
  const std::string name = file.substr(file.rfind('/') + 1);
  const bool generated = starts_with(name, "source of ") || starts_with(name, "call of ");
  return (generated ? name : file) + number;
}

/// Asks addr2line for the lines of some addresses of one file.
std::vector<std::string> ask(const std::string& file, const std::vector<uintptr_t>& addresses) {
  std::vector<std::string> command{"addr2line", "-e", file, "-a", "-i"};
  char hexadecimal[20];
  for (const uintptr_t address : addresses) {
    std::snprintf(hexadecimal, sizeof hexadecimal, "0x%zx", size_t{address});
    command.emplace_back(hexadecimal);
  }
  // For each address, a line with the address itself, then its frames, the innermost first.
  std::vector<std::string> lines;
  std::istringstream answer(output_of(std::move(command)));
  for (std::string line; std::getline(answer, line);) {
    if (starts_with(line, "0x")) {
      lines.emplace_back();
    } else if (!lines.empty() && lines.back().empty()) {
      lines.back() = of_the_author(line);
    }
  }
  lines.resize(addresses.size());
  return lines;
}

}  // namespace

std::vector<std::string> lines_of(const std::vector<const void*>& pcs) {
  std::map<std::string, std::vector<size_t>> by_file;
  std::vector<uintptr_t> addresses;
  for (const void* pc : pcs) {
    const InFile place = in_file(pc);
    if (!place.file.empty()) by_file[place.file].push_back(addresses.size());
    addresses.push_back(place.address);
  }
  std::vector<std::string> lines(pcs.size());
  constexpr size_t at_once = 1000;  // a command line has its limits
  for (const auto& [file, all] : by_file) {
    for (size_t from = 0; from < all.size(); from += at_once) {
      const std::vector<size_t> some(all.begin() + from,
                                     all.begin() + std::min(all.size(), from + at_once));
      std::vector<uintptr_t> wanted;
      for (const size_t i : some) wanted.push_back(addresses[i]);
      const auto found = ask(file, wanted);
      for (size_t i = 0; i < some.size(); ++i) lines[some[i]] = found[i];
    }
  }
  return lines;
}

std::string line_of(const void* pc) { return lines_of({pc})[0]; }

}  // namespace cuda_on_cpu
