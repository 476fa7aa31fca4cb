#include "measure/caption.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace miniacc::measure {
namespace {

using Words = std::vector<std::string>;

struct Phrase {
  std::string_view text;  ///< words with one blank between them
  std::size_t meaning;
};

/// Lower-case words; a comma or full stop is a word of its own, so that no phrase reaches over it.
Words split(std::string_view text) {
  Words words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  };
  for (const char letter : text) {
    const bool upper = letter >= 'A' && letter <= 'Z';
    if (upper || (letter >= 'a' && letter <= 'z') || letter == '-' || (letter & 0x80) != 0) {
      word.push_back(upper ? static_cast<char>(letter - 'A' + 'a') : letter);
      continue;
    }
    end_word();
    if (letter == ',' || letter == '.' || letter == ';' || letter == ':') {
      words.emplace_back(",");
    }
  }
  end_word();
  return words;
}

bool phrase_at(const Words& words, std::size_t at, const Words& phrase) {
  return at + phrase.size() <= words.size() &&
         std::equal(phrase.begin(), phrase.end(), words.begin() + static_cast<std::ptrdiff_t>(at));
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

template <typename Table>
std::optional<std::size_t> find_name(const Table& names, std::string_view word) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == word) {
      return i;
    }
  }
  return std::nullopt;
}

std::optional<std::size_t> find_color(std::string_view word) {
  for (std::size_t i = 0; i < kColors.size(); ++i) {
    if (kColors[i].name == word) {
      return i;
    }
  }
  return std::nullopt;
}

/// Collects what the text says of one attribute.
template <typename T>
class Mentions {
 public:
  void add(T meaning) {
    if (std::find(found_.begin(), found_.end(), meaning) == found_.end()) {
      found_.push_back(meaning);
    }
  }
  [[nodiscard]] Measured<T> result(std::string_view attribute) const {
    if (found_.size() == 1) {
      return found_.front();
    }
    return Measured<T>::unknown(found_.empty()
                                    ? std::string("the caption does not name it")
                                    : fmt::format("the caption names more than one {}", attribute));
  }

 private:
  std::vector<T> found_;
};

/// Adds every phrase that occurs; removes it from the words when `remove` is set.
template <typename T>
void find_phrases(Words& words, std::initializer_list<Phrase> phrases, bool remove,
                  Mentions<T>& mentions) {
  for (const Phrase& phrase : phrases) {
    const Words wanted = split(phrase.text);
    for (std::size_t at = 0; at < words.size(); ++at) {
      if (!phrase_at(words, at, wanted)) {
        continue;
      }
      mentions.add(static_cast<T>(phrase.meaning));
      if (remove) {
        const auto begin = words.begin() + static_cast<std::ptrdiff_t>(at);
        words.erase(begin, begin + static_cast<std::ptrdiff_t>(wanted.size()));
      }
    }
  }
}

/// Cuts "a COLOUR SHAPE rests in the upper SIDE corner" out of the words.
bool remove_second_shape(Words& words) {
  for (std::size_t at = 3; at < words.size(); ++at) {
    if (words[at] != "rests" || !find_name(kShapeNames, words[at - 1])) {
      continue;
    }
    auto end = std::find(words.begin() + static_cast<std::ptrdiff_t>(at), words.end(), ",");
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(at - 3), end);
    return true;
  }
  return false;
}

std::optional<std::size_t> find_size(std::string_view word) {
  if (is_one_of(word, {"small", "tiny", "little"})) {
    return 0;
  }
  if (word == "medium-sized") {
    return 1;
  }
  if (is_one_of(word, {"large", "big"})) {
    return 2;
  }
  return std::nullopt;
}

/// The noun phrase [article] [size] [colour] SHAPE.
void parse_subject(const Words& words, CaptionAttributes& attributes) {
  Mentions<ShapeKind> shapes;
  Mentions<std::size_t> colors;
  Mentions<std::size_t> sizes;
  for (std::size_t at = 1; at < words.size(); ++at) {
    const auto shape = find_name(kShapeNames, words[at]);
    if (!shape) {
      continue;
    }
    std::size_t before = at;  // words left in front of what has been read
    const auto color = find_color(words[before - 1]);
    // "dark red" names a background, not the colour of a shape.
    const bool usable_color = color && !(before >= 2 && words[before - 2] == "dark");
    before -= usable_color ? 1 : 0;
    const auto size = before > 0 ? find_size(words[before - 1]) : std::nullopt;
    before -= size ? 1 : 0;
    const bool article = before > 0 && is_one_of(words[before - 1], {"a", "an", "the", "one"});
    if (!usable_color && !size && !article) {
      continue;  // "to cross the road"
    }
    shapes.add(static_cast<ShapeKind>(*shape));
    if (usable_color) {
      colors.add(*color);
    }
    if (size) {
      sizes.add(*size);
    }
  }
  attributes.shape = shapes.result("shape");
  attributes.color = colors.result("colour");
  attributes.size = sizes.result("size");
  if (!attributes.shape.value && (attributes.color.value || attributes.size.value)) {
    // Two shapes share a colour or size: which of them is the subject stays open.
    attributes.color = Measured<std::size_t>::unknown(attributes.shape.reason);
    attributes.size = Measured<std::size_t>::unknown(attributes.shape.reason);
  }
}

/// A background colour of one or two words at `at`, and how many words it has.
std::optional<std::pair<std::size_t, std::size_t>> background_at(const Words& words,
                                                                 std::size_t at) {
  for (std::size_t i = 0; i < kBackgrounds.size(); ++i) {
    const Words name = split(kBackgrounds[i].name);
    if (phrase_at(words, at, name)) {
      return std::pair(i, name.size());
    }
  }
  return std::nullopt;
}

void parse_background(const Words& words, CaptionAttributes& attributes) {
  Mentions<std::pair<std::size_t, std::size_t>> mentions;
  for (std::size_t at = 1; at < words.size(); ++at) {
    const auto found = background_at(words, at);
    if (!found) {
      continue;
    }
    const auto [index, length] = *found;
    const std::size_t after = at + length;
    const bool has_after = after < words.size();
    if (words[at - 1] == "from" && has_after && words[after] == "to") {
      if (const auto bottom = background_at(words, after + 1)) {
        mentions.add({index, bottom->first});
      }
      continue;
    }
    const bool surface =
        has_after && is_one_of(words[after], {"floor", "background", "room", "backdrop", "wall"});
    if (words[at - 1] == "on" || surface) {
      mentions.add({index, index});
    }
  }
  attributes.background = mentions.result("background");
}

void parse_motion(Words& words, CaptionAttributes& attributes) {
  Mentions<std::size_t> speeds;
  // Removed, because the grammar puts them into the middle of its motion phrases.
  find_phrases(words,
               {{"slowly", 0},
                {"gently", 0},
                {"at a slow pace", 0},
                {"steadily", 1},
                {"at a medium pace", 1},
                {"quickly", 2},
                {"fast", 2},
                {"at high speed", 2}},
               /*remove=*/true, speeds);
  attributes.speed = speeds.result("speed");

  Mentions<Motion> motions;
  for (const auto& [side, motion] :
       {std::pair{"left", Motion::kLeft}, std::pair{"right", Motion::kRight}}) {
    for (const char* verb : {"moves", "moving", "slides", "travels", "goes"}) {
      const std::string to_side = fmt::format("{} to the {}", verb, side);
      const std::string plain = fmt::format("{} {}", verb, side);
      find_phrases(words, {{to_side, index_of(motion)}, {plain, index_of(motion)}},
                   /*remove=*/false, motions);
    }
    const std::string wards = fmt::format("{}wards", side);
    find_phrases(words, {{wards, index_of(motion)}}, /*remove=*/false, motions);
  }
  find_phrases(words,
               {{"from right to left", index_of(Motion::kLeft)},
                {"from left to right", index_of(Motion::kRight)},
                {"upwards", index_of(Motion::kUp)},
                {"rises", index_of(Motion::kUp)},
                {"floats up", index_of(Motion::kUp)},
                {"moves up", index_of(Motion::kUp)},
                {"going up", index_of(Motion::kUp)},
                {"downwards", index_of(Motion::kDown)},
                {"sinks", index_of(Motion::kDown)},
                {"falls", index_of(Motion::kDown)},
                {"moves down", index_of(Motion::kDown)},
                {"going down", index_of(Motion::kDown)},
                {"circular path", index_of(Motion::kCircling)},
                {"circles around", index_of(Motion::kCircling)},
                {"around in circles", index_of(Motion::kCircling)},
                {"bounces", index_of(Motion::kBouncing)},
                {"bouncing", index_of(Motion::kBouncing)},
                {"hops", index_of(Motion::kBouncing)},
                {"grows", index_of(Motion::kGrowing)},
                {"growing", index_of(Motion::kGrowing)},
                {"gets bigger", index_of(Motion::kGrowing)},
                {"expands", index_of(Motion::kGrowing)},
                {"spins", index_of(Motion::kSpinning)},
                {"spinning", index_of(Motion::kSpinning)},
                {"rotates", index_of(Motion::kSpinning)},
                {"turning around itself", index_of(Motion::kSpinning)}},
               /*remove=*/false, motions);
  attributes.motion = motions.result("motion");
}

void parse_pitch(const Words& words, CaptionAttributes& attributes) {
  Mentions<std::size_t> mentions;
  for (std::size_t at = 1; at < words.size(); ++at) {
    if (!is_one_of(words[at], {"tone", "note", "hum", "sound", "beep"})) {
      continue;
    }
    const std::string& word = words[at - 1];
    const bool very = at >= 2 && words[at - 2] == "very";
    if (word == "deep") {
      mentions.add(0);
    } else if (word == "low") {
      mentions.add(very ? 0 : 1);
    } else if (word == "medium") {
      mentions.add(2);
    } else if (word == "high") {
      mentions.add(very ? 4 : 3);
    } else if (word == "shrill") {
      mentions.add(4);
    }
  }
  attributes.pitch = mentions.result("pitch");
}

}  // namespace

CaptionAttributes parse_caption(std::string_view caption) {
  CaptionAttributes attributes;
  Words words = split(caption);
  attributes.names_second_shape = remove_second_shape(words);
  parse_subject(words, attributes);
  parse_background(words, attributes);
  parse_pitch(words, attributes);
  parse_motion(words, attributes);
  return attributes;
}

}  // namespace miniacc::measure
