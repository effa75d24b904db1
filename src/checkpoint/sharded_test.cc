// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/tensor_source.h"
#include "checkpoint/test_archives.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::checkpoint::sharded_test {
namespace {

using hydrant::test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string OneTensor(const std::string& name) {
  return test_archives::Safetensors("{\"" + name + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "ab");
}

// A folder with two shards, "a" in the first and "b" in the second.
class ShardedTest : public ::testing::Test {
 protected:
  ShardedTest() {
    folder_.Write("1.safetensors", OneTensor("a"));
    folder_.Write("2.safetensors", OneTensor("b"));
  }
  std::string Refusal(const std::string& index) {
    const std::string path = folder_.Write("model.safetensors.index.json", index);
    try {
      OpenShardedCheckpoint(path);
      return "";
    } catch (const FileError& e) {
      EXPECT_TRUE(e.file().starts_with(folder_.path())) << e.file();
      return e.what();
    }
  }
  TempDir folder_;
};

TEST_F(ShardedTest, FindsTensorsOfAllShards) {
  const std::string path = folder_.Write("model.safetensors.index.json",
                                         R"({"metadata":{},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  const auto source = OpenShardedCheckpoint(path);
  EXPECT_THAT(source->Names(), ElementsAre("a", "b"));
  EXPECT_EQ(source->display_name(), path);
  EXPECT_EQ(source->files().size(), 3U);
  EXPECT_EQ(source->Find("b")->file, folder_.path() + "/2.safetensors");
  EXPECT_NE(source->Find("a")->storage_id, source->Find("b")->storage_id);
}

TEST_F(ShardedTest, RefusesShardsOutsideTheFolder) {
  for (const char* shard : {"../1.safetensors", "/etc/passwd", "x/1.safetensors", "..", ".", "", "x\\\\y"}) {
    EXPECT_THAT(Refusal(std::string(R"({"weight_map":{"a":")") + shard + "\"}}"), HasSubstr("in this folder")) << shard;
  }
  EXPECT_THAT(Refusal(R"({"weight_map":{"a":"1.safetensors\u0000"}})"), HasSubstr("in this folder"));
  EXPECT_THAT(Refusal(R"({"weight_map":{"a":3}})"), HasSubstr("in this folder"));
}

TEST_F(ShardedTest, RefusesAnIndexThatDoesNotMatchTheShards) {
  EXPECT_THAT(Refusal(R"({"weight_map":{"a":"3.safetensors"}})"),
              HasSubstr("'3.safetensors', which is not in the folder"));
  EXPECT_THAT(Refusal(R"({"weight_map":{"a":"1.safetensors","c":"2.safetensors"}})"), HasSubstr("holds tensor 'c'"));
  EXPECT_THAT(Refusal(R"({"weight_map":{"a":"2.safetensors","b":"2.safetensors","x":"1.safetensors"}})"),
              HasSubstr("holds tensor 'a', which"));
}

// As in transformers, which reads whole shards. A tied name in a shard's metadata is in no index.
TEST_F(ShardedTest, TakesATensorThatTheIndexDoesNotList) {
  const std::string path = folder_.Write("model.safetensors.index.json", R"({"weight_map":{"b":"2.safetensors"}})");
  EXPECT_THAT(OpenShardedCheckpoint(path)->Names(), ElementsAre("b"));  // an unnamed shard is not read
  folder_.Write("2.safetensors",
                test_archives::Safetensors(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                           R"("more":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                           "ab"));
  const auto source = OpenShardedCheckpoint(path);
  EXPECT_THAT(source->Names(), ElementsAre("b", "more"));
  EXPECT_EQ(source->Find("more")->file, folder_.path() + "/2.safetensors");
}

TEST_F(ShardedTest, RefusesATensorInTwoShards) {
  folder_.Write("2.safetensors", OneTensor("a"));
  EXPECT_THAT(Refusal(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})"),
              HasSubstr("holds tensor 'a', which"));
}

TEST_F(ShardedTest, RefusesMalformedIndexes) {
  EXPECT_THAT(Refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("'weight_map' is missing"));
  EXPECT_THAT(Refusal(R"({"weight_map":[]})"), HasSubstr("'weight_map'"));
  EXPECT_THAT(Refusal(R"({"weight_map":{}})"), HasSubstr("at least one tensor"));
}

}  // namespace
}  // namespace hydrant::checkpoint::sharded_test
