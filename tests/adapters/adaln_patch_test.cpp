#include "adapters/adaln_patch.h"

#include <gmock/gmock.h>

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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kLayer = "diffusion_model.blocks.0.adaln_proj.linear";

AdapterTensor counted(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.num_elements()));
  std::iota(values.begin(), values.end(), 1.0F);
  return {shape, values};
}

class AdalnPatch : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path out() const { return folder_ / "out.safetensors"; }
  fs::path write(const AdapterTensors& tensors, const testing::Metadata& metadata = {}) const {
    return testing::write_adapter(folder_ / "in.safetensors", tensors, metadata);
  }
  std::vector<float> values(const std::string& name) const {
    const auto file = TensorFile::open(out());
    EXPECT_TRUE(file);
    const TensorEntry* entry = file ? file->find(name) : nullptr;
    EXPECT_NE(entry, nullptr) << name;
    std::vector<float> read;
    if (entry != nullptr) {
      read.resize(static_cast<std::size_t>(entry->shape.num_elements()));
      dequantize(entry->dtype, *file->bytes(*entry), entry->shape.num_elements(), read.data());
    }
    return read;
  }
  void expect_refused(const Status& status, const std::string& part) const {
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr(part));
    EXPECT_FALSE(fs::exists(out()));
  }
  Status lift(const AdapterTensors& tensors, const WidthLift& by,
              const testing::Metadata& metadata = {}) const {
    const auto done = lift_adapter(write(tensors, metadata), out(), by);
    return done ? Status() : tl::unexpected(done.error());
  }

  // table [rank 2] = q [2, 3] · u
  std::vector<float> q_ = {1, 0, 2, 0, 1, -1};
  std::vector<float> c_ = {10, 100};
  testing::TempDir folder_;
};

TEST_F(AdalnPatch, WritesWeightsAndBiasesBehindAnAdapter) {
  const std::vector<float> weight = {1, 2, 3, 4};
  const std::vector<float> bias = {5, 6};
  const fs::path lora = write({{"diffusion_model.blocks.0.mlp.fc2.diff", counted({2, 2})}});
  ASSERT_TRUE(write_dense_patch(out(), {{"blocks.0.adaln_proj.linear", weight, bias}}, lora,
                                {{"worst_rel_resid", "1e-4"}}));
  EXPECT_EQ(values(kLayer + ".diff"), weight);
  EXPECT_EQ(values(kLayer + ".diff_b"), bias);
  EXPECT_THAT(values("diffusion_model.blocks.0.mlp.fc2.diff"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(TensorFile::open(out())->metadata().at("worst_rel_resid"), "1e-4");
}

TEST_F(AdalnPatch, RefusesAnAdapterThatChangesTheSame) {
  const std::vector<float> weight = {1, 2, 3, 4};
  const std::vector<float> bias = {5, 6};
  const std::vector<DensePatch> patches = {{"blocks.0.adaln_proj.linear", weight, bias}};
  expect_refused(write_dense_patch(out(), patches, write({{kLayer + ".diff_b", counted({2})}}), {}),
                 kLayer + ".diff_b");
  expect_refused(
      write_dense_patch(out(), patches, write({{"blocks.0.mlp.fc2.diff", counted({2, 2})}}), {}),
      "lora convert --to comfy");
}

TEST_F(AdalnPatch, LiftsLowRankPairs) {
  ASSERT_TRUE(lift({{kLayer + ".lora_A.weight", {{1, 2}, {2, 3}}},
                    {kLayer + ".lora_B.weight", counted({4, 1})},
                    {"diffusion_model.blocks.0.mlp.fc2.diff", counted({2, 2})}},
                   {q_, {}, 2, 3}));
  // [2 3] · q
  EXPECT_THAT(values(kLayer + ".lora_A.weight"), ElementsAre(2, 3, 1));
  EXPECT_THAT(values(kLayer + ".lora_B.weight"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values("diffusion_model.blocks.0.mlp.fc2.diff"), ElementsAre(1, 2, 3, 4));
}

TEST_F(AdalnPatch, DenseChangesBecomePairs) {
  ASSERT_TRUE(lift({{kLayer + ".diff", counted({2, 2})}}, {q_, {}, 2, 3}));
  EXPECT_EQ(values(kLayer + ".lora_A.weight"), q_);
  EXPECT_THAT(values(kLayer + ".lora_B.weight"), ElementsAre(1, 2, 3, 4));
}

TEST_F(AdalnPatch, BiasesKeepDenseChangesDense) {
  ASSERT_TRUE(lift({{kLayer + ".diff", counted({2, 2})}, {kLayer + ".diff_b", counted({2})}},
                   {q_, {}, 2, 3}));
  EXPECT_THAT(values(kLayer + ".diff"), ElementsAre(1, 2, 0, 3, 4, 2));
  EXPECT_THAT(values(kLayer + ".diff_b"), ElementsAre(1, 2));
  // A constant goes through the change into the bias: 1·10 + 2·100 and 3·10 + 4·100.
  ASSERT_TRUE(lift({{kLayer + ".diff", counted({2, 2})}, {kLayer + ".diff_b", counted({2})}},
                   {q_, c_, 2, 3}));
  EXPECT_THAT(values(kLayer + ".diff_b"), ElementsAre(211, 432));
  ASSERT_TRUE(lift({{kLayer + ".diff", counted({2, 2})}}, {q_, c_, 2, 3}));
  EXPECT_THAT(values(kLayer + ".diff_b"), ElementsAre(210, 430));
}

TEST_F(AdalnPatch, WhatCannotBeLiftedIsRefused) {
  const WidthLift by = {q_, {}, 2, 3};
  expect_refused(lift({{"diffusion_model.blocks.0.mlp.fc2.diff", counted({2, 2})}}, by),
                 "nothing to lift");
  expect_refused(lift({{kLayer + ".diff", counted({2, 5})}}, by), "wanted 2 columns");
  expect_refused(lift({{"time_embedder.proj_in.diff", counted({2, 2})}}, by), "time_embedder");
  expect_refused(lift({{"something.diff", counted({2, 2})}}, by), "unknown module");
  expect_refused(lift({{kLayer + ".diff", counted({2, 2})}}, by, {{"alpha", "8"}}), "alpha");
  expect_refused(lift({{kLayer + ".lora_A.weight", counted({1, 2})},
                       {kLayer + ".lora_B.weight", counted({4, 1})}},
                      {q_, c_, 2, 3}),
                 "constant");
}

}  // namespace
}  // namespace miniacc
