/// Random histories, and an exhaustive search for their races: every thread has the set of all
/// events that it knows to be over.
#pragma once

#include <bitset>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "race_rules.h"

namespace oracle {

constexpr unsigned steps = 24, places = 3, flags = 2, blocks = 2;
// Two lanes of one warp and one of another: all that the rules tell apart.
constexpr unsigned actors[] = {0, 1, 32};

using Events = std::bitset<steps * blocks>;

inline int memory[places][2], atomics[flags];

struct Access {
  unsigned event, block, actor;
  bool writes;
};

/// What the threads of one block know, and what of it a fence has made visible.
struct Block {
  Events known[3], fenced[3];
  bool ended[3] = {};

  template <class Met>
  void meet(Met met) {
    Events all, seen;
    for (unsigned a = 0; a < 3; ++a) {
      if (met(a)) all |= known[a], seen |= fenced[a];
    }
    for (unsigned a = 0; a < 3; ++a) {
      if (met(a)) known[a] = all, fenced[a] = seen;
    }
  }
};

/// One history: told to the detector as it is made.
class History {
 public:
  explicit History(unsigned seed) : random_(seed) {}

  /// Whether the detector and the search agree.
  bool run() {
    for (auto& place : memory) place[0] = 0;  // so that each write changes it
    Launch launch(64, blocks);
    for (block_ = 0; block_ < blocks; ++block_) {
      launch.block(block_, shared_);
      now_ = {};
      for (unsigned i = 0; i < steps; ++i) step();
    }
    return launch.end().empty() != found_;
  }
  bool found() const { return found_; }

 private:
  unsigned pick(unsigned below) { return random_() % below; }

  void step() {
    const unsigned actor = pick(3), what = pick(20);
    if (what == 0) {
      race::barrier(3);
      now_.meet([](unsigned) { return true; });
    } else if (what <= 2) {
      race::collective(0, 0b11);
      now_.meet([](unsigned a) { return a < 2; });
    } else if (!now_.ended[actor]) {
      act(actor, what);
    }
    ++event_;
  }

  /// Only what is told to the detector may run as a CUDA thread: our own memory is not watched.
  template <class F>
  void tell(unsigned actor, F f) {
    race::thread_runs(actors[actor]);
    f();
    race::no_thread_runs();
  }

  void act(unsigned actor, unsigned what) {
    if (what == 3 && pick(4) == 0) {
      tell(actor, [&] { race::thread_ends(actors[actor]); });
      now_.ended[actor] = true;
    } else if (what <= 6) {
      tell(actor, [] { race::fence(); });
      now_.fenced[actor] |= now_.known[actor];
    } else if (what <= 15) {
      const unsigned flag = pick(flags);
      tell(actor, [&] { race::atomic(&atomics[flag], sizeof(int), nullptr); });
      now_.known[actor] |= released_[flag];
      released_[flag] |= now_.fenced[actor];
    } else {
      access(actor, pick(places), pick(4) == 0);
    }
  }

  void access(unsigned actor, unsigned place, bool writes) {
    int* const p = memory[place];
    const int value = static_cast<int>(event_ + 1);
    tell(actor, [=] {
      if (writes) {
        *p = value;
      } else {
        asm volatile("" : : "r"(*p));
      }
    });
    for (const Access& other : accesses_[place]) {
      const bool same = other.block == block_ && other.actor == actor;
      if (!same && (writes || other.writes) && !now_.known[actor][other.event]) found_ = true;
    }
    accesses_[place].push_back({event_, block_, actor, writes});
    now_.known[actor].set(event_);
  }

  std::mt19937 random_;
  unsigned block_ = 0, event_ = 0;
  Block now_;
  Events released_[flags];
  std::vector<Access> accesses_[places];
  bool found_ = false;
  int shared_[2];
};

}  // namespace oracle

/// 0 if detector and search agree on `count` histories, of which neither few nor most have a race.
inline int check_random(unsigned long seed, unsigned long count) {
  setenv("PATH", "/nowhere", 1);  // thousands of reports need no addr2line
  unsigned long found = 0;
  for (unsigned long i = 0; i < count; ++i) {
    oracle::History history(static_cast<unsigned>(seed * 1000003 + i));
    if (!history.run()) {
      std::printf("history %lu of seed %lu: the search says %d\n", i, seed, history.found());
      return 1;
    }
    found += history.found();
  }
  std::printf("%lu of %lu have a race\n", found, count);
  return found * 10 < count || found * 10 > count * 9;
}
