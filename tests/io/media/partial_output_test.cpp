#include "io/media/partial_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "io/file_util.h"
#include "io/media/clip_fixture.h"

namespace miniacc {
namespace {

using testing::bars;
using testing::busy_frames;
using testing::entries_in;
using ::testing::HasSubstr;
using testing::is_ok;
using testing::small_options;
using testing::TempDir;
using testing::tones;
using testing::write_clip;

/// Bounds the size of files this process writes; writing past it fails with EFBIG, as a full disk
/// fails with ENOSPC.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

TEST(PartialOutput, FullDiskIsSeenAndLeavesNothing) {
  const TempDir folder;
  const auto frames = busy_frames(96, 64, 40);
  const auto sound = fit_audio(tones(60000), 40);
  auto lossless = small_options();
  lossless.lossless = true;
  const std::pair<const char*, VideoWriterOptions> cases[] = {{"x.mp4", small_options()},
                                                              {"x.mkv", small_options()},
                                                              {"lossless.mkv", lossless},
                                                              {"x.wav", small_options()},
                                                              {"x/", small_options()}};
  for (const auto& [name, options] : cases) {
    // From almost nothing up to where only the last write fails: MP4's index, WAV's sizes.
    for (const rlim_t limit : {1000, 10'000, 100'000}) {
      if (std::string(name) == "x/" && limit > 10'000) {
        continue;  // each frame is a file of its own, and audio.wav has 213 kB
      }
      const FileSizeLimit full(limit);
      const Status status = write_clip(folder / name, options, frames, sound);
      ASSERT_FALSE(status) << name << " " << limit;
      EXPECT_EQ(status.error().code, ErrorCode::kIo) << status.error().message;
      EXPECT_THAT(status.error().message, HasSubstr("too large")) << name;
      EXPECT_EQ(entries_in(folder.path()), 0U) << name;
    }
  }
}

TEST(PartialOutput, OneByteTooFewIsSeen) {
  const TempDir folder;
  const auto frames = busy_frames(96, 64, 10);
  const auto sound = fit_audio(tones(60000), 10);
  for (const std::string name : {"x.mp4", "x.mkv", "x.wav"}) {
    ASSERT_TRUE(is_ok(write_clip(folder / name, small_options(), frames, sound)));
    const auto size = std::filesystem::file_size(folder / name);
    std::filesystem::remove(folder / name);
    const FileSizeLimit full(size - 1);
    EXPECT_FALSE(write_clip(folder / name, small_options(), frames, sound)) << name;
    EXPECT_EQ(entries_in(folder.path()), 0U) << name;
  }
}

TEST(PartialOutput, ExistingOutputIsRefusedUnlessToldSo) {
  const TempDir folder;
  auto options = small_options();
  options.audio_sample_rate_hz = 0;
  const auto path = folder / "x.mp4";
  testing::write_file(path, "precious");
  const Status refused = write_clip(path, options, bars(96, 64), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("exists already"));
  EXPECT_EQ(testing::read_file(path), "precious");
  options.overwrite = true;
  ASSERT_TRUE(is_ok(write_clip(path, options, bars(96, 64), {})));
  EXPECT_TRUE(read_clip(path));
  EXPECT_EQ(entries_in(folder.path()), 1U);
}

TEST(PartialOutput, OutputMadeMeanwhileIsNotReplaced) {
  const TempDir folder;
  auto options = small_options();
  options.audio_sample_rate_hz = 0;
  auto writer = VideoWriter::create(folder / "x.mp4", options);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(is_ok((*writer)->write_frames(bars(96, 64))));
  testing::write_file(folder / "x.mp4", "precious");
  const Status status = (*writer)->finish();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("exists already"));
  writer->reset();
  EXPECT_EQ(testing::read_file(folder / "x.mp4"), "precious");
  EXPECT_EQ(entries_in(folder.path()), 1U);
}

TEST(PartialOutput, OnlyFrameFoldersAreReplaced) {
  const TempDir folder;
  auto options = small_options();
  options.audio_sample_rate_hz = 0;
  const auto out = folder / "out/";
  std::filesystem::create_directory(folder / "out");  // an empty folder is filled
  ASSERT_TRUE(is_ok(write_clip(out, options, busy_frames(96, 64, 3), {})));
  EXPECT_THAT(write_clip(out, options, bars(96, 64), {}).error().message,
              HasSubstr("exists already"));
  options.overwrite = true;
  ASSERT_TRUE(is_ok(write_clip(out, options, bars(96, 64), {})));
  EXPECT_EQ(entries_in(out), 1U);
  testing::write_file(out / "thesis.txt", "precious");
  EXPECT_THAT(write_clip(out, options, bars(96, 64), {}).error().message, HasSubstr("thesis.txt"));
  EXPECT_EQ(testing::read_file(out / "thesis.txt"), "precious");
  EXPECT_EQ(entries_in(folder.path()), 1U);
}

TEST(PartialOutput, RefusesFoldersDevicesAndMissingFolders) {
  const TempDir folder;
  std::filesystem::create_directory(folder / "d.mp4");
  const auto file = PartialOutput::create_file(folder / "d.mp4", ExistingOutput::kReplace);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("not a regular file"));
  EXPECT_FALSE(PartialOutput::create_file("/dev/null", ExistingOutput::kReplace));
  testing::write_file(folder / "f", "x");
  EXPECT_FALSE(PartialOutput::create_folder(folder / "f", ExistingOutput::kReplace));
  const auto missing =
      PartialOutput::create_file(folder / "none" / "x.mp4", ExistingOutput::kRefuse);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST(PartialOutput, UnwritableFolderIsAnErrorAtTheStart) {
  if (geteuid() == 0) {
    // Root may write anywhere except where the kernel refuses: /proc takes no files.
    const auto refused = PartialOutput::create_file("/proc/x.mp4", ExistingOutput::kRefuse);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("/proc/x.mp4: cannot write"));
    return;
  }
  const TempDir folder;
  std::filesystem::permissions(
      folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const auto refused = PartialOutput::create_file(folder / "x.mp4", ExistingOutput::kRefuse);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
}

TEST(PartialOutput, LongAndUnicodeNamesWork) {
  const TempDir folder;
  const std::string names[] = {std::string(250, 'n') + ".mp4",
                               "\xD0\xB4\xD0\xBE\xD0\xBC \xE4\xB8\xAD:a?b#c%d.mp4"};
  auto options = small_options();
  options.audio_sample_rate_hz = 0;
  for (const std::string& name : names) {
    ASSERT_TRUE(is_ok(write_clip(folder / name, options, bars(96, 64), {}))) << name;
    EXPECT_EQ(read_clip(folder / name).value().num_frames, 1);
  }
}

TEST(PartialOutput, KilledProcessLeavesNothingUnderTheFinalName) {
  const TempDir folder;
  const pid_t child = fork();
  if (child == 0) {
    auto options = small_options();
    options.threads = 1;
    auto writer = VideoWriter::create(folder / "x.mp4", options);
    if (writer && (*writer)->write_frames(busy_frames(96, 64, 60))) {
      raise(SIGKILL);
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(std::filesystem::exists(folder / "x.mp4"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::StartsWith(".x.partial-"));
  }
  // What it left does not disturb the next run.
  ASSERT_TRUE(is_ok(write_clip(folder / "x.mp4", small_options(), busy_frames(96, 64, 2),
                               fit_audio(tones(9000), 2))));
}

}  // namespace
}  // namespace miniacc
