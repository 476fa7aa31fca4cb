#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapter_names.h"
#include "adapters/adapter_scale.h"
#include "adapters/curve_basis.h"
#include "adapters/lora.h"
#include "device/cpu_device.h"

namespace miniacc {

/// Builds a Lora step by step; private to the layer. Each step leaves what the next one reads.
class LoraBuilder {
 public:
  LoraBuilder(WeightSource& base, const LoraRequest& request, const LoraOptions& options,
              TensorFile file);
  [[nodiscard]] Result<Lora> build();

 private:
  /// The tensors of one module, or of one of q, k, v.
  struct Module {
    AdapterName name;
    std::map<AdapterRole, const TensorEntry*> tensors;
    [[nodiscard]] const TensorEntry* find(AdapterRole role) const;
  };
  using ModuleKey = std::pair<std::string, int>;  ///< canonical module, part or -1

  [[nodiscard]] const TensorFile& file() const { return lora_.file_; }
  [[nodiscard]] tl::unexpected<Error> refuse(const std::string& what,
                                             ErrorCode code = ErrorCode::kInvalidInput) const;

  [[nodiscard]] Status identify();
  /// Which half of MiniMax-H3 the file is for, and whether the transformer is the same.
  [[nodiscard]] Status choose_half();
  [[nodiscard]] bool is_for_other_half(const AdapterName& name) const;
  [[nodiscard]] Status read_names();
  [[nodiscard]] Status add_name(const TensorEntry& entry, const AdapterName& name);
  [[nodiscard]] Status check_vocabulary() const;
  [[nodiscard]] Status read_head_banks();
  [[nodiscard]] bool is_bank_entry(const AdapterName& name) const;
  /// Drops modules that the checkpoint lacks or cannot take; decides whether that is an error.
  [[nodiscard]] Status match_modules();
  /// Where a module's weights are: the full transformer for the time embedding of a pruned one.
  [[nodiscard]] WeightSource& owner_of(const Module& module) const;
  [[nodiscard]] std::vector<LoraDelta>& deltas_for(const Module& module);
  [[nodiscard]] Status add_module(const Module& module);
  [[nodiscard]] Status add_pair(const Module& module, const Shape& target, LoraDelta delta);
  [[nodiscard]] Status add_dense(const Module& module, AdapterRole role, LoraDelta delta);
  /// AdaLN changes of full width on a pruned transformer (lora_builder_curve.cpp).
  [[nodiscard]] bool is_of_full_width(const Module& module) const;
  /// Fits the full transformer's curve, and the adapter's where it changes the time embedding.
  [[nodiscard]] Status fit_curve();
  [[nodiscard]] Status change_time_mlp(TimeMlp& mlp);
  /// What every AdaLN projection gains by the change of the curve.
  [[nodiscard]] Status add_curve_change();
  [[nodiscard]] Status project_pair(LoraDelta delta);
  [[nodiscard]] Status project_dense(LoraDelta delta);
  [[nodiscard]] Status add_projected(const LoraDelta& source, std::vector<double> bias);
  [[nodiscard]] Status check_loss(const LoraDelta& delta, double loss);
  /// A whole AdaLN tensor, or the table, in place of a pruned transformer's (the change is
  /// strength · (theirs - base)).
  [[nodiscard]] bool is_curve_replacement(const AdapterName& name) const;
  [[nodiscard]] Status add_replacement(const TensorEntry& entry, const AdapterName& name);
  [[nodiscard]] Status compare_table(const TensorEntry& entry);
  [[nodiscard]] const ComputedMatrix* keep(Shape shape, std::vector<float> values);
  [[nodiscard]] Status place_rows(const Module& module, const Shape& target,
                                  LoraDelta& delta) const;
  [[nodiscard]] Result<std::optional<double>> read_alpha(const Module& module) const;
  [[nodiscard]] Status choose_alpha_rule();
  [[nodiscard]] Status read_values();
  void finish_report();

  WeightSource& base_;
  LoraRequest request_;
  LoraOptions options_;
  AdapterIdentity identity_;
  Lora lora_;
  std::map<ModuleKey, Module> modules_;
  std::set<AdapterVocabulary> vocabularies_;
  bool interleaved_qkv_ = false;
  bool pruned_ = false;
  bool has_head_banks_ = false;
  bool has_both_halves_ = false;
  std::string half_;  ///< that is read from the file
  std::int64_t num_other_half_ = 0;
  std::optional<CurveBasis> curve_;       ///< with the adapter's time embedding
  std::optional<CurveBasis> base_curve_;  ///< without; empty where it changes none
  std::vector<std::pair<const TensorEntry*, AdapterName>> replacements_;
  std::vector<LoraDelta> time_deltas_;  ///< of the full transformer's time MLP
  double worst_loss_ = 0.0;
  CpuDevice device_;
  std::vector<std::string> unmatched_;
  std::vector<std::string> rejected_;
  AlphaRule rule_;
};

}  // namespace miniacc
