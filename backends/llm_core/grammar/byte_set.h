// A set of byte values. [any thread]
#pragma once

#include <array>
#include <cstdint>

namespace nereid::llm::grammar {

struct ByteSet {
  std::array<uint64_t, 4> words{};

  static ByteSet Of(uint8_t byte) { return Range(byte, byte); }
  static ByteSet Range(unsigned first, unsigned last) {
    ByteSet set;
    for (unsigned byte = first; byte <= last; ++byte) set.Add(static_cast<uint8_t>(byte));
    return set;
  }

  void Add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
  bool Has(uint8_t byte) const { return words[byte >> 6] >> (byte & 63) & 1; }
  bool IsEmpty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  bool operator==(const ByteSet&) const = default;
  ByteSet& operator|=(const ByteSet& other) {
    for (int i = 0; i < 4; ++i) words[i] |= other.words[i];
    return *this;
  }
  ByteSet& operator&=(const ByteSet& other) {
    for (int i = 0; i < 4; ++i) words[i] &= other.words[i];
    return *this;
  }
};

// A division of all byte values into classes whose members no inspected set tells apart.
struct ByteClasses {
  std::array<uint8_t, 256> class_of{};
  int num_classes = 1;

  // Divides each class by the classes of `other`.
  void Split(const ByteClasses& other) {
    std::array<int16_t, 256> first_of;  // by class: the class of `other` that keeps the number
    first_of.fill(-1);
    std::array<std::array<uint8_t, 2>, 256> made;  // class and class of `other`, by new class
    const int num_old = num_classes;
    for (int byte = 0; byte < 256; ++byte) {
      uint8_t& own = class_of[byte];
      const uint8_t by = other.class_of[byte];
      if (first_of[own] < 0) first_of[own] = by;
      if (first_of[own] == by) continue;
      int found = num_old;
      while (found < num_classes && (made[found][0] != own || made[found][1] != by)) ++found;
      if (found == num_classes) {
        made[found] = {own, by};
        ++num_classes;
      }
      own = static_cast<uint8_t>(found);
    }
  }

  // Divides each class into its members inside and outside of `set`.
  void Split(const ByteSet& set) {
    std::array<int16_t, 256> inside;
    std::array<bool, 256> has_outside{};
    inside.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      if (!set.Has(static_cast<uint8_t>(byte))) has_outside[class_of[byte]] = true;
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (!set.Has(static_cast<uint8_t>(byte))) continue;
      const uint8_t old = class_of[byte];
      if (!has_outside[old]) continue;
      if (inside[old] < 0) inside[old] = static_cast<int16_t>(num_classes++);
      class_of[byte] = static_cast<uint8_t>(inside[old]);
    }
  }
};

}  // namespace nereid::llm::grammar
