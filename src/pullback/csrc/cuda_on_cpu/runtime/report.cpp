#include "report.h"

#include "../core.h"
#include "findings.h"
#include "line_of.h"
#include "schedule.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <typeinfo>
#include <vector>

namespace cuda_on_cpu {
namespace {

/// Takes "    key: value" as a row; any other line continues the value before it.
void take_line(std::vector<Row>& rows, const std::string& line) {
  const size_t colon = line.find(": ");
  const bool is_row =
      line.rfind("    ", 0) == 0 && line.size() > 4 && line[4] != ' ' && colon != line.npos;
  if (is_row) {
    const size_t value = line.find_first_not_of(' ', colon + 1);
    rows.push_back({line.substr(4, colon - 4), value == line.npos ? "" : line.substr(value)});
  } else if (!rows.empty()) {
    const size_t begin = line.find_first_not_of(' ');
    rows.back().value += "\n" + (begin == line.npos ? "" : line.substr(begin));
  }
}

std::string triple(const uint3& i) {
  return "(" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
}

std::string of(const Place& place) {
  if (!place.file || !*place.file) return {};
  return std::string(place.file) + ":" + std::to_string(place.line);
}

/// The running thread; or the whole row, where the loop over its threads keeps no count.
std::string thread_here(const Worker& worker) {
  if (!worker.looping) return triple(worker.index[worker.current]);
  if (threadIdx.x != no_index) return triple(threadIdx);
  return triple({0, threadIdx.y, threadIdx.z}) + " to " +
         triple({worker.job->launch.block.x - 1, threadIdx.y, threadIdx.z});
}

std::string printed(const char* format, va_list arguments) {
  char* text = nullptr;
  if (::vasprintf(&text, format, arguments) < 0) return format;
  const std::unique_ptr<char, void (*)(void*)> owner(text, std::free);
  return text;
}

struct Told {
  const char* rule;
  std::string text;
};

Told fault_text(const Trouble& trouble) {
  char address[32];
  std::snprintf(address, sizeof address, "0x%zx", reinterpret_cast<uintptr_t>(trouble.address));
  const std::string verb = trouble.write ? "writes" : "reads";
  switch (trouble.kind) {
    case Trouble::division:
      return {"cuda-fault [PB225]",
              "the kernel divides an integer by zero\n"
              "    help: a GPU would go on with an undefined result"};
    case Trouble::trap:
      return {"cuda-fault [PB225]",
              "the kernel comes to an instruction that cannot be\n"
              "    help: a function may end without its return statement"};
    case Trouble::stack:
      return {
          "cuda-stack-overflow [PB226]",
          "the stack of a thread, " + std::to_string(stack_bytes() >> 10) +
              " KB, is full\n    help: look for a recursion without end or a large local array; "
              "CUDA_ON_CPU_STACK=BYTES gives more"};
    default:
      if (reinterpret_cast<uintptr_t>(trouble.address) < 65536) {
        return {"cuda-fault [PB225]",
                "the kernel " + verb + " through a null pointer\n    address: " + address};
      }
      return {"cuda-fault [PB225]", "the kernel " + verb +
                                        " memory that it may not\n    address: " + address +
                                        "\n    help: the check \"memory\" tells which array it is"};
  }
}

Told cancel_text(Cancel cancel) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g s", options().timeout_seconds);
  if (cancel == Cancel::timeout) {
    return {"cuda-timeout [PB224]",
            std::string("the kernel ran for longer than ") + seconds +
                "\n    help: a loop may never end; the limit is CUDA_ON_CPU_TIMEOUT=SECONDS"};
  }
  return {"cuda-interrupted [PB231]", "the launch was interrupted"};
}

}  // namespace

std::string render(const std::string& text, const std::string& rule, const Row* rows,
                   size_t count) {
  std::vector<Row> all(rows, rows + count), own;
  size_t end = std::min(text.find('\n'), text.size());
  const std::string message = text.substr(0, end);
  while (end < text.size()) {
    const size_t begin = end + 1;
    end = std::min(text.find('\n', begin), text.size());
    take_line(own, text.substr(begin, end - begin));
  }
  const auto has = [&](const std::string& key) {
    return std::any_of(own.begin(), own.end(), [&](const Row& row) { return row.key == key; });
  };
  std::erase_if(all, [&](const Row& row) { return row.value.empty() || has(row.key); });
  const auto help =
      std::stable_partition(own.begin(), own.end(), [](const Row& r) { return r.key != "help"; });
  // First the message's own evidence, then the place, and the cure last.
  all.insert(all.begin(), own.begin(), help);
  all.insert(all.end(), help, own.end());
  size_t width = 0;
  for (const Row& row : all) width = std::max(width, row.key.size() + 1);
  std::string result = rule + ": " + message;
  for (const Row& row : all) {
    result += "\n    " + row.key + ":" + std::string(width - row.key.size(), ' ');
    for (const char c : row.value) {
      result += c;
      if (c == '\n') result += std::string(width + 5, ' ');
    }
  }
  return result;
}

std::string describe(Worker& worker) {
  const Trouble& trouble = worker.trouble;
  const Job& job = *worker.job;
  Told told{trouble.rule, trouble.text};
  if (trouble.kind == Trouble::cancelled) {
    told = cancel_text(job.cancel.load());
  } else if (trouble.kind != Trouble::told) {
    told = fault_text(trouble);
  }
  std::string at = trouble.place;
  for (const void* code : trouble.code) {
    if (at.empty() && code) at = line_of(code);
  }
  const Row rows[] = {{"kernel", job.launch.name},
                      {"block", triple(blockIdx)},
                      {"thread", trouble.of_block ? "" : thread_here(worker)},
                      {"at", at},
                      {"launched", of(job.launch.place)}};
  return render(told.text, told.rule, rows, std::size(rows));
}

void find_author_code(const Job& job, const void** code, int count) {
  Dl_info kernel;
  if (!::dladdr(reinterpret_cast<void*>(job.launch.run), &kernel)) return;
  void* frames[48];
  const int depth = ::backtrace(frames, 48);
  for (int i = 0; i < depth && count > 0; ++i) {
    Dl_info info;
    if (!::dladdr(frames[i], &info) || info.dli_fbase != kernel.dli_fbase) continue;
    *code++ = frames[i], --count;
  }
}

void raise_trouble(Worker& worker, Trouble trouble) {
  worker.trouble = std::move(trouble);
  worker.give_up();
}

void stop(const char* rule, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = printed(format, arguments);
  va_end(arguments);
  if (Worker* worker = running) {
    Trouble trouble;
    trouble.kind = Trouble::told;
    trouble.rule = rule;
    trouble.text = std::move(text);
    find_author_code(*worker->job, trouble.code, std::size(trouble.code));
    raise_trouble(*worker, std::move(trouble));
  }
  const std::string error = render(text, rule, nullptr, 0);
  findings::record(error.c_str());
  throw Error(error);
}

Trouble of_exception() {
  Trouble trouble;
  trouble.kind = Trouble::told;
  trouble.rule = "cuda-exception [PB229]";
  int status;
  const std::type_info* type = abi::__cxa_current_exception_type();
  const std::unique_ptr<char, void (*)(void*)> name(
      type ? abi::__cxa_demangle(type->name(), nullptr, nullptr, &status) : nullptr, std::free);
  trouble.text = std::string("the kernel throws ") + (name ? name.get() : "an exception");
  try {
    throw;
  } catch (const std::exception& error) {
    trouble.text += std::string(": ") + error.what();
  } catch (...) {
  }
  trouble.text += "\n    help: a GPU has no exceptions; a kernel may not throw";
  return trouble;
}

void assert_failed(const char* expression, const char* file, unsigned line, const char* function) {
  if (!running) {
    std::fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, expression);
    std::abort();
  }
  stop("cuda-assert [PB227]", "assertion `%s` failed\n    at: %s:%u", expression, file, line);
}

void cuda_on_cpu_ptx(const char* instruction, const char* file, int line) {
  stop("cuda-unsupported [PB228]",
       "the instruction `%s` of a GPU cannot run on the CPU\n    at: %s:%d\n"
       "    help: guard it with `#ifndef CUDA_ON_CPU`, and write what it does in C++",
       instruction, file, line);
}

// Deadlocks.

namespace {

std::string waits(const Worker& worker, unsigned rank) {
  const Wait& wait = *worker.thread[rank].wait;
  char mask[40] = "";
  if (!wait.at_barrier()) std::snprintf(mask, sizeof mask, ", mask 0x%08x", wait.mask);
  return std::string("in ") + wait.name + mask + " at " + of(wait.place());
}

}  // namespace

void Worker::deadlock() {
  std::string text = "no thread of the block can go on";
  struct Kind {
    unsigned first, count;
    std::string where;
  };
  std::vector<Kind> kinds;
  for (unsigned rank = 0; rank < threads; ++rank) {
    if (!(alive[rank / 32] >> rank % 32 & 1)) continue;
    std::string where = waits(*this, rank);
    const auto same =
        std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.where == where; });
    if (same != kinds.end()) {
      ++same->count;
    } else {
      kinds.push_back({rank, 1, std::move(where)});
    }
  }
  for (size_t i = 0; i < std::min<size_t>(kinds.size(), 8); ++i) {
    const Kind& kind = kinds[i];
    text += (i ? "\n    and: thread " : "\n    waiting: thread ") + triple(index[kind.first]);
    text += kind.count > 1 ? " and " + std::to_string(kind.count - 1) + " more wait " : " waits ";
    text += kind.where;
  }
  text += "\n    exited: " + std::to_string(threads - live) + " of " + std::to_string(threads) +
          " threads";
  Trouble trouble;
  trouble.kind = Trouble::told;
  trouble.rule = "cuda-deadlock [PB222]";
  trouble.of_block = true;
  trouble.text = std::move(text);
  trouble.place = of(thread[kinds.empty() ? current : kinds[0].first].wait->place());
  raise_trouble(*this, std::move(trouble));
}

void check_one_place(Worker& worker) {
  int first = -1;
  for (unsigned rank = 0; rank < worker.threads; ++rank) {
    if (!(worker.alive[rank / 32] >> rank % 32 & 1)) continue;
    if (first < 0) first = int(rank);
    const Wait &a = *worker.thread[first].wait, &b = *worker.thread[rank].wait;
    if (same_place(a.place(), b.place())) continue;
    stop("cuda-divergence [PB233]",
         "threads of one block meet in different calls of %s\n    at: %s\n    first: thread %s is "
         "%s\n"
         "    other: thread %s is %s\n    help: call it where all threads of the block come by",
         a.name, of(a.place()).c_str(), triple(worker.index[first]).c_str(),
         waits(worker, unsigned(first)).c_str(), triple(worker.index[rank]).c_str(),
         waits(worker, rank).c_str());
  }
}

}  // namespace cuda_on_cpu
