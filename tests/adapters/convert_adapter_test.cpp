#include "adapters/convert_adapter.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

#include "adapters/adapter_files.h"
#include "io/dequantize.h"
#include "io/tensor_file.h"
#include "support/temp_dir.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;
using testing::AdapterTensor;
using testing::AdapterTensors;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Metadata;

const std::string kQ = "transformer_blocks.0.attn.to_q";
const std::string kK = "transformer_blocks.0.attn.to_k";
const std::string kV = "transformer_blocks.0.attn.to_v";
const std::string kFused = "diffusion_model.blocks.0.attn.qkv_proj";
const std::string kA = ".lora_A.weight";
const std::string kB = ".lora_B.weight";

AdapterTensor tensor(const Shape& shape, std::vector<float> values) { return {shape, values}; }
AdapterTensor counted(const Shape& shape, float first = 0.0F) {
  std::vector<float> values(static_cast<std::size_t>(shape.num_elements()));
  std::iota(values.begin(), values.end(), first);
  return {shape, values};
}

class ConvertAdapter : public ::testing::Test {
 protected:
  fs::path write(const AdapterTensors& tensors, const Metadata& metadata = {},
                 const std::string& name = "in.safetensors") const {
    return testing::write_adapter(folder_ / name, tensors, metadata);
  }
  [[nodiscard]] fs::path out() const { return folder_ / "out.safetensors"; }

  AdapterConversion convert(const fs::path& in, const ConvertAdapterOptions& options) const {
    auto result = convert_adapter(in, out(), options);
    EXPECT_TRUE(result) << result.error().message;
    return result ? *std::move(result) : AdapterConversion();
  }
  AdapterConversion convert(const AdapterTensors& tensors,
                            const ConvertAdapterOptions& options = {},
                            const Metadata& metadata = {}) const {
    return convert(write(tensors, metadata), options);
  }
  /// The conversion must find a problem that says `part`, and leave no file.
  void expect_problem(const AdapterConversion& done, const std::string& part) const {
    EXPECT_THAT(done.problems, Contains(HasSubstr(part)));
    EXPECT_EQ(done.num_written, 0);
    EXPECT_FALSE(fs::exists(out()));
    for (const auto& item : fs::directory_iterator(folder_.path())) {
      EXPECT_EQ(item.path().filename().string().find(".miniacc"), std::string::npos)
          << "a temporary file is left: " << item.path();
    }
  }
  void expect_problem(const AdapterTensors& tensors, const std::string& part,
                      const ConvertAdapterOptions& options = {},
                      const Metadata& metadata = {}) const {
    expect_problem(convert(tensors, options, metadata), part);
  }

  static std::map<std::string, AdapterTensor> read(const fs::path& path) {
    std::map<std::string, AdapterTensor> tensors;
    const auto file = TensorFile::open(path);
    EXPECT_TRUE(file) << file.error().message;
    for (const TensorEntry& entry : file->entries()) {
      AdapterTensor& read = tensors[entry.name];
      read.shape = entry.shape;
      read.dtype = entry.dtype;
      read.values.resize(static_cast<std::size_t>(entry.shape.num_elements()));
      dequantize(entry.dtype, *file->bytes(entry), entry.shape.num_elements(), read.values.data());
    }
    return tensors;
  }
  [[nodiscard]] std::map<std::string, AdapterTensor> converted() const { return read(out()); }

  static void expect_same(const std::map<std::string, AdapterTensor>& left,
                          const std::map<std::string, AdapterTensor>& right) {
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left) {
      ASSERT_TRUE(right.contains(name)) << name;
      EXPECT_EQ(tensor.shape, right.at(name).shape) << name;
      EXPECT_EQ(tensor.dtype, right.at(name).dtype) << name;
      EXPECT_EQ(tensor.values, right.at(name).values) << name;
    }
  }

  /// q, k and v of one layer, inner width 4, input width 3, rank 2.
  static AdapterTensors split_qkv(std::int64_t rank = 2) {
    AdapterTensors tensors;
    float first = 1.0F;
    for (const std::string& part : {kQ, kK, kV}) {
      tensors[part + kA] = counted({rank, 3}, first);
      tensors[part + kB] = counted({4, rank}, first + 100.0F);
      first += 20.0F;
    }
    return tensors;
  }

  testing::TempDir folder_;
};

/// [out, in] of up · down in double.
std::vector<double> product(const AdapterTensor& up, const AdapterTensor& down) {
  std::vector<double> out;
  const std::int64_t rank = down.shape[0];
  for (std::int64_t row = 0; row < up.shape[0]; ++row) {
    for (std::int64_t column = 0; column < down.shape[1]; ++column) {
      double sum = 0.0;
      for (std::int64_t r = 0; r < rank; ++r) {
        sum += static_cast<double>(up.values[static_cast<std::size_t>(row * rank + r)]) *
               down.values[static_cast<std::size_t>(r * down.shape[1] + column)];
      }
      out.push_back(sum);
    }
  }
  return out;
}

// The nine kinds of defect of the first published tools (spec adapters.md §11). Defects 7 to 9 are
// of a profiler that reads another program's event stream; there is no such tool here.

TEST_F(ConvertAdapter, Defect1IncompleteTripleWritesNothing) {
  AdapterTensors only_q = {{kQ + kA, counted({2, 3})}, {kQ + kB, counted({4, 2})}};
  expect_problem(only_q, "lora_A is there for 1 of q, k and v");
  for (const std::string& suffix : {kA, kB}) {
    AdapterTensors without = split_qkv();
    without.erase(kK + suffix);
    expect_problem(without, "is there for 2 of q, k and v");
  }
  // Of the dense kinds as well.
  expect_problem({{kQ + ".diff", counted({4, 3})}, {kV + ".diff", counted({4, 3})}},
                 "diff is there for 2");
  expect_problem({{kQ + ".diff_b", counted({4})}}, "diff_b is there for 1");
}

TEST_F(ConvertAdapter, Defect2InnerRanksMustFit) {
  const std::string module = "transformer_blocks.0.ff.net.2";
  const TensorShapes model = {{"blocks.0.mlp.fc2.weight", {4, 3}}};
  ConvertAdapterOptions options;
  options.model = &model;
  expect_problem({{module + kA, counted({2, 3})}, {module + kB, counted({4, 3})}}, "ranks differ",
                 options);
  AdapterTensors qkv = split_qkv();
  qkv[kK + kB] = counted({4, 3});
  expect_problem(qkv, "ranks differ");
}

TEST_F(ConvertAdapter, Defect3DenseFc1ChangesSwapTheirHalves) {
  const std::string module = "transformer_blocks.0.ff.net.0.proj";
  const auto done =
      convert({{module + ".diff", counted({4, 3})}, {module + ".diff_b", counted({4})}});
  EXPECT_THAT(done.problems, IsEmpty());
  const auto out = converted();
  EXPECT_EQ(out.at("diffusion_model.blocks.0.mlp.fc1.diff").values,
            (std::vector<float>{6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5}));
  EXPECT_THAT(out.at("diffusion_model.blocks.0.mlp.fc1.diff_b").values, ElementsAre(2, 3, 0, 1));
}

TEST_F(ConvertAdapter, Defect4NanNeverComparesEqual) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ConvertAdapterOptions options;
  options.compare = write({{"diffusion_model.video_patch_proj.diff", tensor({1, 2}, {0, 0})}}, {},
                          "twin.safetensors");
  expect_problem({{"proj_in.diff", tensor({1, 2}, {nan, nan})}}, "not finite", options);
  // In the twin, too.
  options.compare = write({{"diffusion_model.video_patch_proj.diff", tensor({1, 2}, {nan, 0})}}, {},
                          "twin.safetensors");
  expect_problem({{"proj_in.diff", tensor({1, 2}, {0, 0})}}, "1 of 2 values", options);
}

TEST_F(ConvertAdapter, Defect5NothingIsBroadcastByTheComparison) {
  ConvertAdapterOptions options;
  options.compare = write(
      {{"diffusion_model.video_patch_proj.diff", tensor({2, 3}, std::vector<float>(6, 1.0F))}}, {},
      "twin.safetensors");
  expect_problem({{"proj_in.diff", tensor({2, 1}, {1, 1})}}, "wanted [2, 1]", options);
}

TEST_F(ConvertAdapter, Defect6ModelErrorsCountBesideAComparison) {
  const TensorShapes model = {{"video_patch_proj.weight", {3, 3}}};
  ConvertAdapterOptions options;
  options.model = &model;
  options.compare =
      write({{"diffusion_model.video_patch_proj.diff", counted({2, 2})}}, {}, "twin.safetensors");
  expect_problem({{"proj_in.diff", counted({2, 2})}}, "wanted [3, 3]", options);
}

TEST_F(ConvertAdapter, FusingKeepsTheProduct) {
  const AdapterTensors in = split_qkv();
  EXPECT_THAT(convert(in).problems, IsEmpty());
  const auto out = converted();
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out.at(kFused + kA).shape, (Shape{6, 3}));
  EXPECT_EQ(out.at(kFused + kB).shape, (Shape{12, 6}));
  std::vector<double> wanted;
  for (const std::string& part : {kQ, kK, kV}) {
    const auto rows = product(in.at(part + kB), in.at(part + kA));
    wanted.insert(wanted.end(), rows.begin(), rows.end());
  }
  EXPECT_EQ(product(out.at(kFused + kB), out.at(kFused + kA)), wanted);
}

TEST_F(ConvertAdapter, WorkedExampleOfTheSpecification) {
  const AdapterTensors in = {{kQ + kA, tensor({1, 2}, {1, 2})}, {kK + kA, tensor({1, 2}, {3, 4})},
                             {kV + kA, tensor({1, 2}, {5, 6})}, {kQ + kB, tensor({2, 1}, {1, 0})},
                             {kK + kB, tensor({2, 1}, {0, 2})}, {kV + kB, tensor({2, 1}, {3, 1})}};
  convert(in);
  auto out = converted();
  EXPECT_THAT(out.at(kFused + kA).values, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(out.at(kFused + kB).values,
            (std::vector<float>{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 1}));
  EXPECT_THAT(product(out.at(kFused + kB), out.at(kFused + kA)),
              ElementsAre(1, 2, 0, 0, 0, 0, 6, 8, 15, 18, 5, 6));
}

TEST_F(ConvertAdapter, DenseQkvChangesAreStacked) {
  EXPECT_THAT(convert({{kQ + ".diff", counted({2, 2}, 0)},
                       {kK + ".diff", counted({2, 2}, 4)},
                       {kV + ".diff", counted({2, 2}, 8)}})
                  .problems,
              IsEmpty());
  EXPECT_EQ(converted().at(kFused + ".diff").values, counted({6, 2}).values);
}

TEST_F(ConvertAdapter, SplitFuseSplitIsTheIdentity) {
  // Ranks of their own, zeros inside, bf16: what comes back is what went in.
  for (const std::int64_t rank : {1, 2, 5}) {
    AdapterTensors in = split_qkv(rank);
    in[kK + kB].values.assign(in[kK + kB].values.size(), 0.0F);
    in["transformer_blocks.0.ff.net.0.proj" + kA] = counted({rank, 3});
    in["transformer_blocks.0.ff.net.0.proj" + kB] = counted({8, rank});
    AdapterTensors prefixed;
    for (auto& [name, tensor] : in) {
      tensor.dtype = DType::kBF16;
      prefixed["transformer." + name] = tensor;
    }
    EXPECT_THAT(convert(prefixed).problems, IsEmpty());
    const fs::path fused = folder_ / "fused.safetensors";
    fs::rename(out(), fused);
    ConvertAdapterOptions back;
    back.to = AdapterTarget::kDiffusers;
    back.compare = folder_ / "in.safetensors";
    const auto done = convert(fused, back);
    EXPECT_THAT(done.problems, IsEmpty());
    EXPECT_EQ(done.num_compared, 8);
    expect_same(converted(), read(folder_ / "in.safetensors"));
    fs::remove(out());
  }
}

TEST_F(ConvertAdapter, UnlikeRanksComeBackByTheirZeroColumns) {
  AdapterTensors in = split_qkv();
  in[kV + kA] = counted({3, 3}, 7);
  in[kV + kB] = counted({4, 3}, 9);
  EXPECT_THAT(convert(in).problems, IsEmpty());
  fs::rename(out(), folder_ / "fused.safetensors");
  ConvertAdapterOptions back;
  back.to = AdapterTarget::kDiffusers;
  back.compare = folder_ / "in.safetensors";
  EXPECT_EQ(convert(folder_ / "fused.safetensors", back).num_compared, 6);
}

TEST_F(ConvertAdapter, SplittingADenseFusedPairCopiesA) {
  const AdapterTensors in = {{kFused + kA, counted({2, 3}, 1)}, {kFused + kB, counted({6, 2}, 1)}};
  ConvertAdapterOptions options;
  options.to = AdapterTarget::kDiffusers;
  EXPECT_THAT(convert(in, options).problems, IsEmpty());
  const auto out = converted();
  for (const std::string& part : {kQ, kK, kV}) {
    EXPECT_EQ(out.at("transformer." + part + kA).values, in.at(kFused + kA).values);
  }
  EXPECT_THAT(out.at("transformer." + kK + kB).values, ElementsAre(5, 6, 7, 8));
  // Without compaction a block-diagonal one keeps its full rank.
  fs::remove(this->out());
  convert(split_qkv());
  fs::rename(this->out(), folder_ / "fused.safetensors");
  options.compact = false;
  convert(folder_ / "fused.safetensors", options);
  EXPECT_EQ(converted().at("transformer." + kQ + kA).shape, (Shape{6, 3}));
}

TEST_F(ConvertAdapter, DiffSynthHeadsBecomePlainRows) {
  // Two heads of width 1: rows q0,k0,v0,q1,k1,v1 -> q0,q1,k0,k1,v0,v1.
  const std::string module = "blocks.0.attn.qkv_proj";
  const TensorShapes model = {{module + ".weight", {6, 2}}, {"blocks.0.attn.q_norm.weight", {1}}};
  ConvertAdapterOptions options;
  options.model = &model;
  const auto done = convert({{module + ".lora_A.default.weight", counted({1, 2})},
                             {module + ".lora_B.default.weight", counted({6, 1})}},
                            options);
  EXPECT_THAT(done.problems, IsEmpty());
  EXPECT_EQ(done.family, "DiffSynth");
  EXPECT_THAT(converted().at(kFused + kB).values, ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST_F(ConvertAdapter, FlatNamesAreLookedUpWhole) {
  const auto done =
      convert({{"lora_unet_token_refiner_blocks_1_attn_out_proj.lora_down.weight", counted({2, 3})},
               {"lora_unet_token_refiner_blocks_1_attn_out_proj.lora_up.weight", counted({4, 2})}});
  EXPECT_THAT(done.problems, IsEmpty());
  EXPECT_TRUE(converted().contains("diffusion_model.token_refiner.blocks.1.attn.out_proj" + kA));
  fs::remove(out());
  expect_problem({{"lora_unet_blocks_1_attn_other.lora_down.weight", counted({2, 3})}},
                 "unknown module or suffix");
}

TEST_F(ConvertAdapter, AlphaTensorsNeedAWord) {
  AdapterTensors in = split_qkv();
  for (const std::string& part : {kQ, kK, kV}) {
    in[part + ".alpha"] = tensor({}, {4});
  }
  expect_problem(in, "--alpha file");
  // alpha / rank = 2; the fused rank is three times as large, and so is alpha.
  ConvertAdapterOptions options;
  options.trust_alpha_tensors = true;
  EXPECT_THAT(convert(in, options).problems, IsEmpty());
  EXPECT_THAT(converted().at(kFused + ".alpha").values, ElementsAre(12));
  fs::remove(out());
  // A number given replaces what the file says: 2 / rank 2 is 1, which needs no tensor.
  options.alpha = 2.0;
  EXPECT_THAT(convert(in, options).problems, IsEmpty());
  EXPECT_FALSE(converted().contains(kFused + ".alpha"));
  fs::remove(out());
  for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::infinity()}) {
    in[kQ + ".alpha"] = tensor({}, {bad});
    ConvertAdapterOptions trust;
    trust.trust_alpha_tensors = true;
    EXPECT_FALSE(convert(in, trust).problems.empty()) << bad;
    EXPECT_FALSE(fs::exists(out()));
  }
}

TEST_F(ConvertAdapter, UnlikeScalesAreFoldedIntoB) {
  AdapterTensors in = split_qkv();
  for (const std::string& part : {kQ, kK, kV}) {
    in[part + ".alpha"] = tensor({}, {part == kK ? 1.0F : 4.0F});
  }
  ConvertAdapterOptions options;
  options.trust_alpha_tensors = true;
  const auto done = convert(in, options);
  EXPECT_THAT(done.problems, IsEmpty());
  EXPECT_THAT(done.notes, Contains(HasSubstr("scales 2, 0.5 and 2")));
  const auto out = converted();
  EXPECT_FALSE(out.contains(kFused + ".alpha"));
  const auto fused = product(out.at(kFused + kB), out.at(kFused + kA));
  const auto k = product(in.at(kK + kB), in.at(kK + kA));
  for (std::size_t i = 0; i < k.size(); ++i) {
    EXPECT_EQ(fused[k.size() + i], 0.5 * k[i]);
  }
}

TEST_F(ConvertAdapter, MetadataAlphaIsDividedByEachRank) {
  AdapterTensors in;
  in["transformer_blocks.0.attn.to_out.0" + kA] = counted({128, 3});
  in["transformer_blocks.0.attn.to_out.0" + kB] = counted({4, 128});
  EXPECT_THAT(convert(in, {}, {{"alpha", "8"}}).problems, IsEmpty());
  const std::string module = "diffusion_model.blocks.0.attn.out_proj";
  // 8 / 128 = 0.0625: the rank stays, and so does alpha.
  EXPECT_THAT(converted().at(module + ".alpha").values, ElementsAre(8));
  fs::remove(out());
  expect_problem(in, "metadata 'alpha'", {}, {{"alpha", "eight"}});
  // lightx2v's names and rank without any alpha: some files need 8, some 128.
  expect_problem(in, "--alpha tells");
}

TEST_F(ConvertAdapter, MixedRanksWithoutAlphaAllHaveScaleOne) {
  const AdapterTensors in = {{"blocks.0.mlp.fc2" + kA, counted({64, 2})},
                             {"blocks.0.mlp.fc2" + kB, counted({4, 64})},
                             {"blocks.0.adaln_proj.linear" + kA, counted({16, 2})},
                             {"blocks.0.adaln_proj.linear" + kB, counted({4, 16})}};
  EXPECT_THAT(convert(in).problems, IsEmpty());
  for (const auto& [name, tensor] : converted()) {
    EXPECT_FALSE(name.ends_with(".alpha")) << name;
  }
}

TEST_F(ConvertAdapter, CollidingNamesAreAnError) {
  expect_problem({{"blocks.0.mlp.fc2.lora_A.weight", counted({2, 3})},
                  {"blocks.0.mlp.fc2.lora_down.weight", counted({2, 3})},
                  {"blocks.0.mlp.fc2.lora_B.weight", counted({4, 2})}},
                 "are the same part");
  AdapterTensors mixed = split_qkv();
  mixed["blocks.1.mlp.fc2" + kA] = counted({2, 3});
  mixed["blocks.1.mlp.fc2" + kB] = counted({4, 2});
  expect_problem(mixed, "two conventions");
}

TEST_F(ConvertAdapter, WhatMapsToNothingIsAnError) {
  expect_problem({{"double_blocks.0.img_attn.lora_A.weight", counted({2, 3})}}, "FLUX");
  expect_problem({{kQ + ".lora_C.weight", counted({2, 3})}}, "unknown module or suffix");
  expect_problem({{"blocks.0.mlp.fc2.dora_scale", counted({2})}}, "other than plain low rank");
  expect_problem({{"proj_out.weight", counted({2, 2, 3})}}, "PDD");
  expect_problem(
      {{"blocks.0.mlp.fc2.diff", AdapterTensor{{2, 3}, std::vector<float>(6), DType::kI8}}},
      "is i8");
}

TEST_F(ConvertAdapter, PartitionsOfTwoTransformersAreTakenApart) {
  AdapterTensors both;
  for (const auto& [name, tensor] : split_qkv()) {
    both["transformer." + name] = tensor;
    both["transformer_ref." + name] = counted(tensor.shape, 500);
  }
  expect_problem(both, "--force-base");
  ConvertAdapterOptions options;
  options.base = AdapterBase::kRef2va;
  const auto done = convert(both, options);
  EXPECT_THAT(done.problems, IsEmpty());
  EXPECT_EQ(done.base, "ref2va");
  EXPECT_EQ(done.dropped.begin()->second, 6);
  EXPECT_EQ(converted().at(kFused + kA).values.front(), 500.0F);
  fs::remove(out());
  // The partition that is asked for must be there.
  AdapterTensors plain;
  for (const auto& [name, tensor] : split_qkv()) {
    plain["transformer." + name] = tensor;
  }
  expect_problem(plain, "no changes of the Ref2VA", options);
  // Only one partition: its prefix decides, and comes back on the way to diffusers.
  AdapterTensors ref;
  for (const auto& [name, tensor] : split_qkv()) {
    ref["transformer_ref." + name] = tensor;
  }
  ConvertAdapterOptions same;
  same.to = AdapterTarget::kDiffusers;
  EXPECT_EQ(convert(ref, same).base, "ref2va");
  EXPECT_TRUE(converted().contains("transformer_ref." + kQ + kA));
}

TEST_F(ConvertAdapter, APrunedModelDropsWhatItCannotTakeAndCounts) {
  const TensorShapes model = {{"adaln_t_table", {9, 2}},
                              {"blocks.0.adaln_proj.linear.weight", {4, 2}},
                              {"blocks.0.mlp.fc2.weight", {4, 3}}};
  ConvertAdapterOptions options;
  options.model = &model;
  AdapterTensors in = {{"blocks.0.adaln_proj.linear" + kA, counted({1, 16})},
                       {"blocks.0.adaln_proj.linear" + kB, counted({4, 1})},
                       {"time_embedder.proj_in" + kA, counted({1, 16})},
                       {"time_embedder.proj_in" + kB, counted({4, 1})}};
  expect_problem(in, "nothing is left to write", options);
  in["blocks.0.mlp.fc2" + kA] = counted({1, 3});
  in["blocks.0.mlp.fc2" + kB] = counted({4, 1});
  const auto done = convert(in, options);
  EXPECT_THAT(done.problems, IsEmpty());
  EXPECT_EQ(done.dropped.size(), 2U);
  for (const auto& [reason, count] : done.dropped) {
    EXPECT_EQ(count, 2) << reason;
  }
  EXPECT_EQ(done.num_written, 2);
}

TEST_F(ConvertAdapter, ComparisonWantsTheSameTensorsOnBothSides) {
  ConvertAdapterOptions options;
  AdapterTensors twin = {{kFused + kA, counted({6, 3})}};
  options.compare = write(twin, {}, "twin.safetensors");
  expect_problem(split_qkv(), "has no twin", options);
  convert(split_qkv());
  auto real = converted();
  fs::remove(out());
  twin = {real.begin(), real.end()};
  twin[kFused + ".alpha"] = tensor({}, {6});  // says the scale: ignored
  options.compare = write(twin, {}, "twin.safetensors");
  EXPECT_EQ(convert(split_qkv(), options).num_compared, 2);
  fs::remove(out());
  twin["diffusion_model.blocks.1.mlp.fc2.diff"] = counted({2, 2});
  options.compare = write(twin, {}, "twin.safetensors");
  expect_problem(split_qkv(), "has no counterpart", options);
  twin.erase("diffusion_model.blocks.1.mlp.fc2.diff");
  twin[kFused + kA].values[4] += 1e-6F;
  options.compare = write(twin, {}, "twin.safetensors");
  expect_problem(split_qkv(), "1 of 18 values", options);
}

TEST_F(ConvertAdapter, OddRowsAreAnError) {
  expect_problem({{"transformer_blocks.0.ff.net.0.proj" + kA, counted({2, 3})},
                  {"transformer_blocks.0.ff.net.0.proj" + kB, counted({5, 2})}},
                 "multiple of 2");
  expect_problem({{kFused + kA, counted({2, 3})}, {kFused + kB, counted({7, 2})}}, "multiple of 3");
  expect_problem({{"blocks.0.mlp.fc2" + kA, counted({2, 3})},
                  {"blocks.0.mlp.fc2" + kB, counted({4, 2})},
                  {"blocks.0.mlp.fc2.diff_b", counted({4, 1})}},
                 "wanted a vector on its own");
}

TEST_F(ConvertAdapter, CancellingLeavesNoFile) {
  CancelToken token;
  token.cancel();
  ConvertAdapterOptions options;
  options.cancel = &token;
  const auto result = convert_adapter(write(split_qkv()), out(), options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(fs::exists(out()));
}

}  // namespace
}  // namespace miniacc
