#include "runtime/job_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "device/cpu_device.h"
#include "kernels/linear.h"

namespace miniacc {
namespace {

using nlohmann::json;

constexpr double kMiB = 1024.0 * 1024.0;

/// One run of rows with what it shows.
struct NamedSegment {
  std::string name;
  std::string size;  ///< "7x4x6 latents" or "37 latents a channel"
  const char* time;  ///< t of its rows as a rule
  Segment segment;
};

std::string frames_size(const LatentSize& size) {
  return fmt::format("{}x{}x{} latents", size.num_frames, size.height, size.width);
}
std::string sound_size(std::int64_t latents) { return fmt::format("{} latents a side", latents); }

/// Segments in row order, matched with the conditions they come from.
std::vector<NamedSegment> named_segments(const JobPlan& plan) {
  std::vector<std::pair<std::string, std::string>> conditions;
  for (const Condition& condition : plan.prepared.conditions) {
    if (condition.has_sound()) {
      conditions.emplace_back(condition.role == ConditionRole::kVideo
                                  ? fmt::format("sound of {}", condition.name)
                                  : condition.name,
                              sound_size(condition.num_audio_latents()));
    }
    if (condition.is_visual()) {
      conditions.emplace_back(condition.name, frames_size(condition.latents()));
    }
  }
  const ClipGeometry& clip = plan.prepared.geometry;
  std::vector<NamedSegment> named;
  std::size_t next = 0;
  for (const Segment& segment : plan.sequence.segments) {
    switch (segment.kind) {
      case SegmentKind::kText:
        named.push_back({"text", fmt::format("{} tokens", segment.rows.count), "t_video", segment});
        break;
      case SegmentKind::kVideoCondition:
        named.push_back({conditions.at(next).first, conditions.at(next).second,
                         "max(t_video, 0.999)", segment});
        ++next;
        break;
      case SegmentKind::kAudioCondition:
        named.push_back({conditions.at(next).first, conditions.at(next).second, "1", segment});
        ++next;
        break;
      case SegmentKind::kTargetAudio:
        named.push_back({"clip's sound", sound_size(clip.audio_latents), "t_audio", segment});
        break;
      case SegmentKind::kTargetVideo:
        named.push_back({"clip's video",
                         frames_size({clip.latent_frames, clip.latent_height, clip.latent_width}),
                         "t_video", segment});
        break;
    }
  }
  return named;
}

/// "0", "1", "2", or "0 and 1" for text with vision blocks.
std::string tags_of(const JobPlan& plan, const RowRange& rows) {
  std::vector<std::int32_t> tags(plan.sequence.tags.begin() + rows.first,
                                 plan.sequence.tags.begin() + rows.end());
  std::sort(tags.begin(), tags.end());
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  return fmt::format("{}", fmt::join(tags, ","));
}

double clock_of(const JobPlan& plan, const RowRange& rows) {
  return plan.sequence.position_ids.at(static_cast<std::size_t>(3 * rows.first));
}

std::vector<float> step_times(const JobPlan& plan, std::size_t step) {
  const SigmaSchedule& schedule = plan.prepared.schedule;
  return plan.sequence.distinct_times(1.0F - schedule.video[step], 1.0F - schedule.audio[step]);
}

double total_flops(const JobPlan& plan) {
  double sum = 0.0;
  for (const StagePlan& stage : plan.stages) {
    sum += stage.flops;
  }
  return sum;
}

std::size_t peak_bytes(const JobPlan& plan) {
  std::size_t peak = 0;
  for (const StagePlan& stage : plan.stages) {
    peak = std::max(peak, stage.peak_bytes());
  }
  return peak;
}

std::string duration_text(double seconds) {
  if (seconds < 120.0) {
    return fmt::format("{:.1f} s", seconds);
  }
  return seconds < 7200.0 ? fmt::format("{:.0f} min", seconds / 60.0)
                          : fmt::format("{:.1f} h", seconds / 3600.0);
}

void add_layout_lines(const JobPlan& plan, std::vector<std::string>& lines) {
  lines.push_back(fmt::format("packed sequence: {} rows", plan.sequence.num_rows()));
  lines.push_back(fmt::format("  {:>9} {:>9}  {:<5} {:>9}  {:<20} {:<24} {}", "first", "rows",
                              "tags", "clock", "timestep", "size", "what"));
  for (const NamedSegment& named : named_segments(plan)) {
    const RowRange& rows = named.segment.rows;
    lines.push_back(fmt::format("  {:>9} {:>9}  {:<5} {:>9.2f}  {:<20} {:<24} {}", rows.first,
                                rows.count, tags_of(plan, rows), clock_of(plan, rows), named.time,
                                named.size, named.name));
  }
  const std::size_t last = plan.prepared.schedule.num_forwards() - 1;
  lines.push_back(
      fmt::format("  distinct timesteps: {:.6g} at the first forward, {:.6g} at the last",
                  fmt::join(step_times(plan, 0), " "), fmt::join(step_times(plan, last), " ")));
}

void add_share_lines(const JobPlan& plan, std::vector<std::string>& lines) {
  if (plan.shares.empty()) {
    return;
  }
  lines.emplace_back("shares of what the clip is conditioned on:");
  lines.push_back(
      fmt::format("  {:>12} {:>7} {:>12} {:>7}  {}", "text tokens", "", "packed rows", "", "what"));
  for (const ConditionShare& share : plan.shares) {
    lines.push_back(fmt::format(
        "  {:>12} {:>6.1f}% {:>12} {:>6.1f}%  {}{}", share.text_tokens,
        100.0 * static_cast<double>(share.text_tokens) / static_cast<double>(plan.num_text_tokens),
        share.packed_rows,
        100.0 * static_cast<double>(share.packed_rows + share.text_tokens) /
            static_cast<double>(plan.sequence.num_rows()),
        share.name, share.label.empty() ? "" : fmt::format(", {} in the prompt", share.label)));
  }
}

void add_stage_lines(const JobPlan& plan, std::vector<std::string>& lines) {
  lines.push_back(fmt::format(
      "memory and work on the CPU in {}, attention in {} (MiB; scratch of single operations "
      "and the program itself come on top):",
      plan.precision, plan.attention));
  lines.push_back(fmt::format("  {:<20} {:>10} {:>10} {:>12} {:>10} {:>12}", "stage", "weights",
                              "read", "activations", "peak", "GFLOP"));
  for (const StagePlan& stage : plan.stages) {
    lines.push_back(fmt::format("  {:<20} {:>10.1f} {:>10.1f} {:>12.1f} {:>10.1f} {:>12.1f}",
                                stage.name, static_cast<double>(stage.weight_bytes) / kMiB,
                                static_cast<double>(stage.streamed_bytes) / kMiB,
                                static_cast<double>(stage.activation_bytes) / kMiB,
                                static_cast<double>(stage.peak_bytes()) / kMiB, stage.flops / 1e9));
  }
  const double total = total_flops(plan);
  std::string line = fmt::format("  peak {:.1f} MiB, {:.1f} GFLOP in all",
                                 static_cast<double>(peak_bytes(plan)) / kMiB, total / 1e9);
  if (plan.flops_per_second > 0.0) {
    line += fmt::format("; at least {} at the {:.0f} GFLOP/s that a matrix product reaches here",
                        duration_text(total / plan.flops_per_second), plan.flops_per_second / 1e9);
  }
  lines.push_back(std::move(line));
}

json segments_json(const JobPlan& plan) {
  json list = json::array();
  for (const NamedSegment& named : named_segments(plan)) {
    const RowRange& rows = named.segment.rows;
    const std::vector<std::int32_t> tags(plan.sequence.tags.begin() + rows.first,
                                         plan.sequence.tags.begin() + rows.end());
    json tag_runs = json::array();
    for (std::size_t i = 0; i < tags.size();) {
      const auto end = std::find_if(tags.begin() + static_cast<std::ptrdiff_t>(i), tags.end(),
                                    [&](std::int32_t tag) { return tag != tags[i]; });
      const auto next = static_cast<std::size_t>(end - tags.begin());
      tag_runs.push_back({{"tag", tags[i]}, {"rows", next - i}});
      i = next;
    }
    list.push_back({{"what", named.name},
                    {"size", named.size},
                    {"first_row", rows.first},
                    {"rows", rows.count},
                    {"tags", tag_runs},
                    {"clock", clock_of(plan, rows)},
                    {"timestep", named.time}});
  }
  return list;
}

}  // namespace

std::string job_plan_text(const JobPlan& plan) {
  const GenerateRequest& request = plan.prepared.request;
  const ClipGeometry& clip = plan.prepared.geometry;
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("{}: {}x{}, {} frames ({:.2f} s), {} forwards, recipe {}, noise {}, seed {}",
                  task_name(plan.prepared.task), clip.width, clip.height, clip.num_frames,
                  static_cast<double>(clip.num_frames) / kFramesPerSecond,
                  plan.prepared.schedule.num_forwards(), request.sampling.recipe,
                  request.sampling.noise, request.seed));
  for (const std::string& note : plan.notes) {
    lines.push_back(fmt::format("note: {}", note));
  }
  lines.push_back(fmt::format("final text, {} tokens, used as it is:", plan.num_text_tokens));
  lines.push_back(fmt::format("  {}", plan.final_text));
  add_layout_lines(plan, lines);
  add_share_lines(plan, lines);
  add_stage_lines(plan, lines);
  if (plan.device) {
    const std::vector<std::string> device = device_plan_lines(*plan.device);
    lines.insert(lines.end(), device.begin(), device.end());
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string job_plan_json(const JobPlan& plan) {
  const SigmaSchedule& schedule = plan.prepared.schedule;
  json shares = json::array();
  for (const ConditionShare& share : plan.shares) {
    shares.push_back({{"what", share.name},
                      {"label", share.label},
                      {"text_tokens", share.text_tokens},
                      {"packed_rows", share.packed_rows}});
  }
  json stages = json::array();
  for (const StagePlan& stage : plan.stages) {
    stages.push_back({{"name", stage.name},
                      {"flops", stage.flops},
                      {"weight_bytes", stage.weight_bytes},
                      {"streamed_bytes", stage.streamed_bytes},
                      {"activation_bytes", stage.activation_bytes},
                      {"peak_bytes", stage.peak_bytes()}});
  }
  json times = json::array();
  for (std::size_t i = 0; i < schedule.num_forwards(); ++i) {
    times.push_back(step_times(plan, i));
  }
  const double total = total_flops(plan);
  json document = {{"event", "plan"},
                   {"task", task_name(plan.prepared.task)},
                   {"request", json::parse(request_to_json(plan.prepared.request))},
                   {"notes", plan.notes},
                   {"text", {{"tokens", plan.num_text_tokens}, {"final", plan.final_text}}},
                   {"sequence",
                    {{"rows", plan.sequence.num_rows()},
                     {"segments", segments_json(plan)},
                     {"timesteps", times}}},
                   {"conditions", shares},
                   {"precision", plan.precision},
                   {"attention", plan.attention},
                   {"stages", stages},
                   {"peak_bytes", peak_bytes(plan)},
                   {"available_bytes", available_memory_bytes()},
                   {"flops", total}};
  if (plan.flops_per_second > 0.0) {
    document["flops_per_second"] = plan.flops_per_second;
    document["at_least_seconds"] = total / plan.flops_per_second;
  }
  if (plan.device) {
    document["device"] = device_plan_json(*plan.device);
  }
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

double measure_flops_per_second(Precision precision, int num_threads) {
  // 2 · 512³ operations, about a millisecond each on one AVX2 core.
  constexpr std::int64_t kSize = 512;
  constexpr double kSeconds = 0.03;
  constexpr double kFlops = 2.0 * kSize * kSize * kSize;
  CpuDevice device;
  OpContext ctx{device, num_threads};
  Tensor x = empty_tensor(device, {kSize, kSize});
  Tensor out = empty_tensor(device, {kSize, kSize});
  std::fill(x.f32().begin(), x.f32().end(), 0.5F);
  OwnedWeightMatrix weight;
  weight.values = empty_tensor(device, {kSize, kSize},
                               precision == Precision::kF32 ? DType::kF32 : DType::kBF16);
  if (precision == Precision::kF32) {
    std::fill(weight.values.f32().begin(), weight.values.f32().end(), 0.25F);
  } else {
    auto* bits = weight.values.view().as<std::uint16_t>();
    std::fill(bits, bits + kSize * kSize, std::uint16_t{0x3E80});  // 0.25
  }
  ops::linear(ctx, out.view(), x.view(), weight.view());  // warms up
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  double best = 0.0;
  while (std::chrono::duration<double>(Clock::now() - begin).count() < kSeconds) {
    const auto start = Clock::now();
    ops::linear(ctx, out.view(), x.view(), weight.view());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, kFlops / seconds);
  }
  return best;
}

std::size_t available_memory_bytes() {
  std::ifstream info("/proc/meminfo");
  std::string word;
  while (info >> word) {
    if (word == "MemAvailable:") {
      std::size_t kibibytes = 0;
      return info >> kibibytes ? kibibytes * 1024 : 0;
    }
  }
  return 0;
}

}  // namespace miniacc
