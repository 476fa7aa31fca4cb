#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "core/build_config.h"
#include "device/cpu_device.h"
#include "miniacc/tools.h"
#include "runtime/compute_device.h"
#include "runtime/pipeline.h"

namespace miniacc {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr const char* kPlannedModel = "synthetic:full-int8";

/// What follows the colon in the first line of a /proc file that starts with `key`; empty: none.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      const std::size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
      return line.find(':') == std::string::npos || begin == std::string::npos ? std::string()
                                                                               : line.substr(begin);
    }
  }
  return {};
}

/// "24689060 kB" in bytes; 0 where the system does not say.
std::size_t memory_bytes(const std::string& key) {
  const std::string value = proc_value("/proc/meminfo", key);
  return value.empty() ? 0 : std::strtoull(value.c_str(), nullptr, 10) * 1024;
}

std::string vector_units() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) {
    return "AVX-512";
  }
  return __builtin_cpu_supports("avx2") ? "AVX2" : "SSE2";
#else
  return "baseline";
#endif
}

std::string text_report(const nlohmann::json& report) {
  const auto& cpu = report.at("cpu");
  const auto& memory = report.at("memory");
  std::string text = fmt::format(
      "build    {}\ncpu      {}, {} threads, {}\nmemory   {:.1f} GiB, {:.1f} GiB available\n",
      report.at("build").get<std::string>(), cpu.at("name").get<std::string>(),
      cpu.at("threads").get<unsigned>(), cpu.at("vectors").get<std::string>(),
      memory.at("total_bytes").get<double>() / kGiB,
      memory.at("available_bytes").get<double>() / kGiB);
  for (const auto& gpu : report.at("gpus")) {
    const std::string trouble = gpu.at("trouble").get<std::string>();
    text += fmt::format(
        "gpu {}    {}, compute capability {}, {:.1f} GiB{}\n", gpu.at("ordinal").get<int>(),
        gpu.at("name").get<std::string>(), gpu.at("compute_capability").get<std::string>(),
        gpu.at("total_bytes").get<double>() / kGiB,
        trouble.empty()
            ? fmt::format(", {:.1f} GiB free", gpu.at("free_bytes").get<double>() / kGiB)
            : fmt::format(": {}", trouble));
  }
  if (!report.at("no_gpu").get<std::string>().empty()) {
    text += fmt::format("gpu      none: {}\n", report.at("no_gpu").get<std::string>());
  }
  return text + fmt::format("verdict  {}", report.at("verdict").get<std::string>());
}

/// Device memory of the released model's largest trained size under a ceiling.
Result<DevicePlan> usual_plan(std::size_t ceiling_bytes) {
  constexpr std::size_t kNumTokens = 256;
  GenerateRequest request;
  request.prompt = "-";
  request.sampling.recipe = "lightx2v4";
  request.model.folder = kPlannedModel;
  MINIACC_ASSIGN(const PreparedRequest prepared, prepare_request(request, {.needs_output = false}));
  CpuDevice host;
  MINIACC_ASSIGN(const Pipeline pipeline,
                 Pipeline::open_for_plan(request.model, host, Precision::kInt8, 0, prepared.task));
  Presentation presentation;
  presentation.ids.assign(kNumTokens, 0);
  presentation.tags.assign(kNumTokens, Modality::kText);
  return pipeline.plan_device(prepared, presentation, {}, ceiling_bytes);
}

}  // namespace

Result<MachineReport> report_machine(const std::string& device, ReportFormat format) {
  MINIACC_ASSIGN(const DeviceChoice choice, parse_device(device));
  std::string name = proc_value("/proc/cpuinfo", "model name");
  nlohmann::json report = {{"build", version()},
                           {"cpu",
                            {{"name", name.empty() ? "unknown" : name},
                             {"threads", std::thread::hardware_concurrency()},
                             {"vectors", vector_units()}}},
                           {"memory",
                            {{"total_bytes", memory_bytes("MemTotal")},
                             {"available_bytes", memory_bytes("MemAvailable")}}},
                           {"cuda_build", kHasCuda},
                           {"gpus", nlohmann::json::array()},
                           {"no_gpu", ""}};
  if (const auto devices = report_devices()) {
    for (const DeviceReport& gpu : *devices) {
      report["gpus"].push_back(
          {{"ordinal", gpu.ordinal},
           {"name", gpu.name},
           {"compute_capability", fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor)},
           {"total_bytes", gpu.total_bytes},
           {"free_bytes", gpu.free_bytes},
           {"trouble", gpu.trouble}});
    }
  } else {
    report["no_gpu"] = devices.error().message;
  }
  MachineReport result;
  const auto opened = open_compute_device(choice, {});
  if (!opened) {
    report["verdict"] =
        fmt::format("--device {} cannot be used: {}", device, opened.error().message);
    result.device_works = false;
  } else if (opened->device) {
    report["verdict"] = opened->note;
  } else {
    report["verdict"] = opened->note.empty() ? "computing on the CPU" : opened->note;
  }
  report["device_works"] = result.device_works;
  report["plan"] = nullptr;
  std::string plan_text;
  if (opened && opened->card) {
    plan_text = fmt::format("\n1344x768, 124 frames, int8 weights of the released sizes:");
    if (const auto plan = usual_plan(opened->ceiling_bytes)) {
      report["plan"] = device_plan_json(*plan);
      plan_text += fmt::format("\n{}", fmt::join(device_plan_lines(*plan), "\n"));
    } else {
      plan_text += fmt::format("\n  {}", plan.error().message);
    }
  }
  result.text = format == ReportFormat::kJson
                    ? report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                    : text_report(report) + plan_text;
  return result;
}

}  // namespace miniacc
