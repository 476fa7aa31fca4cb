#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/adaln_curve.h"
#include "checkpoint/component_layout.h"
#include "checkpoint/config_documents.h"
#include "checkpoint/convert.h"
#include "checkpoint/open_component.h"
#include "checkpoint/synthetic_configs.h"
#include "device/cpu_device.h"

namespace miniacc {

/// One component on its way to another layout: what will be written, and what it is called.
/// Private to the conversion.
class ComponentConversion {
 public:
  /// Opens the source (headers only), and for a pruned target fits the curve table.
  [[nodiscard]] static Result<std::unique_ptr<ComponentConversion>> open(
      const std::filesystem::path& path, const ConvertOptions& options);

  ComponentConversion(const ComponentConversion&) = delete;
  ComponentConversion& operator=(const ComponentConversion&) = delete;

  [[nodiscard]] Component component() const { return analysis_->info.component; }
  [[nodiscard]] const std::vector<OutputTensor>& outputs() const { return outputs_; }
  /// Files that are taken as they are instead of `outputs`; empty: none.
  [[nodiscard]] const std::vector<std::filesystem::path>& copies() const { return copies_; }
  /// The JSON files of a folder format.
  [[nodiscard]] std::vector<ConfigFile> configs() const;
  /// What a single file says about itself.
  [[nodiscard]] std::string single_config() const;
  /// Called when everything is written: takes what was measured on the way into the report.
  /// kInvalidInput when a layer does not fit the curve table.
  [[nodiscard]] Status finish();
  [[nodiscard]] ConvertedComponent& report() { return report_; }
  [[nodiscard]] bool is_gguf() const;

 private:
  class AdalnFit;
  explicit ComponentConversion(const ConvertOptions& options);

  [[nodiscard]] Status read(const std::filesystem::path& path);
  [[nodiscard]] Status check_source() const;
  [[nodiscard]] Status describe();
  [[nodiscard]] Status fit_table();
  [[nodiscard]] Status build_outputs();
  void choose_copies();
  [[nodiscard]] std::vector<ExpectedTensor> wanted_tensors();
  [[nodiscard]] const CanonicalTensor* find(const std::string& name) const;
  [[nodiscard]] CanonicalSource source_of(const ExpectedTensor& wanted,
                                          const CanonicalTensor& tensor);
  void add_pruned(LayoutBuilder& builder, const ExpectedTensor& wanted);
  void add_inverse_frequencies(LayoutBuilder& builder, const ExpectedTensor& wanted);
  void add_extras(LayoutBuilder& builder);
  [[nodiscard]] RowFill rows_of(const CanonicalTensor& tensor);
  [[nodiscard]] bool prunes() const;
  [[nodiscard]] const nlohmann::json* text_document() const;
  [[nodiscard]] nlohmann::ordered_json patched(nlohmann::ordered_json config) const;
  [[nodiscard]] nlohmann::ordered_json text_config(std::int64_t stored_layers) const;

  ConvertOptions options_;
  CpuDevice device_;
  std::unique_ptr<ComponentAnalysis> analysis_;
  std::unique_ptr<ComponentWeights> weights_;  ///< the same file, for the time MLP
  std::vector<ConfigDocument> documents_;
  SyntheticModel model_;
  bool has_weight_norm_ = false;
  CurveTable table_;
  CurveDirections basis_;
  std::vector<std::shared_ptr<AdalnFit>> fits_;
  std::deque<CanonicalTensor> own_tensors_;  ///< parts and extras; addresses stay
  Int8ErrorMeter meter_;
  std::vector<OutputTensor> outputs_;
  std::vector<std::filesystem::path> copies_;
  ConvertedComponent report_;
};

}  // namespace miniacc
