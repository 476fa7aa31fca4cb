#include "model/support/dit_case.h"

#include <stdexcept>

namespace miniacc::testing {
namespace {

/// t = 1 - sigma of the two streams at the first steps of the five-point grids.
const std::vector<std::pair<float, float>> kTimes = {
    {0.0F, 0.0F}, {0.0270270109F, 0.100000024F}, {0.199999988F, 0.5F}};

/// The second video time is later than that of a condition, 0.999.
const std::vector<std::pair<float, float>> kKeyframeTimes = {{0.0769230723F, 0.25F},
                                                             {0.9995F, 0.75F}};

PackedSequence pack(const std::string& name) {
  if (name == "t2_4x6") {
    return pack_t2va(3, {2, 4, 6}, 8);
  }
  if (name == "t7_6x4") {
    return pack_t2va(6, {7, 6, 4}, 37);
  }
  if (name == "t12_4x6") {
    return pack_t2va(11, {12, 4, 6}, 65);
  }
  if (name == "keyframes") {
    const std::vector<Modality> tags = {Modality::kText, Modality::kVideo, Modality::kVideo,
                                        Modality::kText};
    return pack_fl2va(tags, {.first = true, .last = true}, {2, 4, 6}, 8);
  }
  throw std::runtime_error("no such case: " + name);
}

}  // namespace

DitCase dit_case(const std::string& name, const Golden& golden, Device& device) {
  DitCase result;
  result.name = name;
  result.sequence = pack(name);
  if (name == "t12_4x6") {
    result.times = {kTimes[1]};
  } else if (name == "keyframes") {
    result.times = kKeyframeTimes;
  } else {
    result.times = kTimes;
  }
  result.video_rows = golden_tensor(golden, name + ".video_rows", device);
  result.audio_rows = golden_tensor(golden, name + ".audio_rows", device);
  result.text_states = golden_tensor(golden, name + ".text_states", device);
  return result;
}

std::vector<DitCase> all_dit_cases(const Golden& golden, Device& device) {
  std::vector<DitCase> cases;
  for (const char* name : {"t2_4x6", "t7_6x4", "t12_4x6", "keyframes"}) {
    cases.push_back(dit_case(name, golden, device));
  }
  return cases;
}

std::vector<float> last_rows(const std::vector<float>& values, std::int64_t rows,
                             std::int64_t width) {
  return {values.end() - rows * width, values.end()};
}

}  // namespace miniacc::testing
