// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/test_archives.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint::pickle_test {
namespace {

using test_archives::Dict;
using test_archives::Global;
using test_archives::Le;
using test_archives::Proto;
using test_archives::Tensor;
using test_archives::Text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::string& pickle) {
  try {
    ReadStateDict(pickle, "m.pt");
    return "";
  } catch (const FileError& e) {
    EXPECT_EQ(e.file(), "m.pt");
    return e.what();
  }
}

const test_archives::ViewOf kView = {.elements = 6, .offset = 1, .shape = {2, 1}, .strides = {2, 1}};

TEST(PickleTest, ReadsAnOrderedDictOfTensors) {
  const auto tensors = ReadStateDict(Proto() + Dict({{"w", Tensor(kView)}}) + ".", "m.pt");
  ASSERT_EQ(tensors.size(), 1U);
  const PickledTensor& w = tensors.at("w");
  EXPECT_EQ(w.storage_key, "0");
  EXPECT_EQ(w.dtype, DType::kF32);
  EXPECT_EQ(w.storage_elements, 6);
  EXPECT_EQ(w.offset, 1);
  EXPECT_THAT(w.shape, ElementsAre(2, 1));
  EXPECT_THAT(w.strides, ElementsAre(2, 1));
}

TEST(PickleTest, ReadsAPlainDictAndParameters) {
  const std::string parameter = Global("torch._utils", "_rebuild_parameter") + Tensor(kView) + "\x88" +
                                Global("collections", "OrderedDict") + ")R\x87R";
  EXPECT_EQ(Refusal(Proto() + "}" + Text("w") + parameter + "s."), "");
}

TEST(PickleTest, ReadsProtocol4) {
  std::string body = Tensor(kView);
  const std::string old_global = Global("torch._utils", "_rebuild_tensor_v2");
  body = "\x8c\x0ctorch._utils\x94\x8c\x12_rebuild_tensor_v2\x93" + body.substr(old_global.size());
  EXPECT_EQ(Refusal("\x80\x04\x95" + Le(0, 8) + "}\x94" + Text("w") + body + "s."), "");
}

TEST(PickleTest, RefusesGlobalsByName) {
  EXPECT_THAT(Refusal(Proto() + Global("os", "system") + Text("id") + "\x85R."),
              HasSubstr("data.pkl wants to call os.system: refused"));
  EXPECT_THAT(Refusal(Proto() + Text("posix") + Text("system") + "\x93."), HasSubstr("posix.system"));
  EXPECT_THAT(Refusal(Proto() + Global("torch", "DoubleStorage") + "."), HasSubstr("torch.DoubleStorage"));
  EXPECT_THAT(Refusal(Proto() + Global("a\x1b[2J", "b") + "."), HasSubstr("a\\x1b[2J.b"));
  EXPECT_THAT(Refusal(Proto() + "cnever ends"), HasSubstr("ends too early"));
}

TEST(PickleTest, RefusesOpcodesByName) {
  EXPECT_THAT(Refusal(Proto() + "ios\nsystem\n."), HasSubstr("INST"));
  EXPECT_THAT(Refusal(Proto() + "))\x81."), HasSubstr("NEWOBJ"));
  EXPECT_THAT(Refusal(Proto() + "S'x'\n."), HasSubstr("STRING"));
  EXPECT_THAT(Refusal(Proto() + "\x82\x01."), HasSubstr("EXT1"));
  EXPECT_THAT(Refusal(Proto() + "\xfe."), HasSubstr("254 (unknown)"));
  EXPECT_THAT(Refusal("\x80\x09."), HasSubstr("protocol 9"));
}

TEST(PickleTest, RefusesWhatIsNoDictOfTensors) {
  EXPECT_THAT(Refusal(Proto() + "K\1."), HasSubstr("holds a number, expected a dict"));
  EXPECT_THAT(Refusal(Proto() + "}" + Text("state_dict") + "}s."), HasSubstr("a dict as 'state_dict'"));
  EXPECT_THAT(Refusal(Proto() + "}" + Text("epoch") + "K\1s."), HasSubstr("a number as 'epoch'"));
  EXPECT_THAT(Refusal(Proto() + "}K\1K\1s."), HasSubstr("name of a tensor is a number"));
  EXPECT_THAT(Refusal(Proto() + Dict({{"w", Tensor(kView)}, {"w", Tensor(kView)}}) + "."), HasSubstr("'w' twice"));
}

TEST(PickleTest, RefusesMalformedStacks) {
  for (const char* const body :
       {"",   ".",  "s.",  "t.",     "u.",     "(u.",  "}K\1s.", "}(K\1u.", "\x87.", "R.",     ")R.", "))R.",
        "Q.", "b.", "}b.", "K\1}b.", "]K\1b.", "h\1.", "q\1.",   "}(.",     "NNa.",  "}K\1a.", "]).", "}.x"}) {
    EXPECT_NE(Refusal(Proto() + body), "") << body;
  }
  EXPECT_EQ(Refusal(Proto() + "}."), "");
  EXPECT_THAT(Refusal(Proto() + Global("collections", "OrderedDict") + "N\x85R."), HasSubstr("with arguments"));
}

TEST(PickleTest, RefusesHostileNumbers) {
  EXPECT_THAT(Refusal(Proto() + "\x8b" + Le(0x80000000, 4) + "."), HasSubstr("2147483648 bytes"));
  EXPECT_THAT(Refusal(Proto() + "\x8a\x09" + std::string(9, 'x') + "."), HasSubstr("9 bytes"));
  EXPECT_THAT(Refusal(Proto() + "X" + Le(0xFFFFFFFF, 4) + "x."), HasSubstr("ends too early"));
  EXPECT_THAT(Refusal(Proto() + "\x8d" + Le(~uint64_t{0}, 8) + "x."), HasSubstr("ends too early"));
  test_archives::ViewOf view = kView;
  view.offset = -1;
  EXPECT_THAT(Refusal(Proto() + Dict({{"w", Tensor(view)}}) + "."), HasSubstr("negative offset"));
  view = kView;
  view.shape = {-1, 1};
  EXPECT_THAT(Refusal(Proto() + Dict({{"w", Tensor(view)}}) + "."), HasSubstr("negative number"));
  view.shape = {1};
  EXPECT_THAT(Refusal(Proto() + Dict({{"w", Tensor(view)}}) + "."), HasSubstr("more extents"));
  view.shape = view.strides = std::vector<int64_t>(9, 1);
  EXPECT_THAT(Refusal(Proto() + Dict({{"w", Tensor(view)}}) + "."), HasSubstr("9 dimensions"));
  view = kView;
  view.elements = INT64_MIN;
  EXPECT_THAT(Refusal(Proto() + Dict({{"w", Tensor(view)}}) + "."), HasSubstr("-9223372036854775808"));
}

TEST(PickleTest, NegativeNumbersKeepTheirSign) {
  test_archives::ViewOf view = kView;
  std::string pickle = Proto() + Dict({{"w", Tensor(view)}}) + ".";
  const std::string offset = "K\1(";
  pickle.replace(pickle.find(offset), offset.size(), "\x8a\x01\xff(");  // LONG1 of one byte: -1
  EXPECT_THAT(Refusal(pickle), HasSubstr("negative offset"));
}

TEST(PickleTest, MemoBombsStayCheap) {
  std::string bomb = Proto() + "K\1q\1";
  for (int i = 0; i < 100; ++i) bomb += "h\1h\1\x86q\1";  // 2^100 leaves, if anybody walked them
  EXPECT_THAT(Refusal(bomb + "."), HasSubstr("holds a tuple"));
  EXPECT_THAT(Refusal(Proto() + "]q\1h\1a."), HasSubstr("holds a list"));  // a list that holds itself
  EXPECT_THAT(Refusal(Proto() + std::string(3U << 20, 'N') + "."), HasSubstr("more than 1048576 values"));
  EXPECT_THAT(Refusal(Proto() + std::string(5U << 20, '(') + "."), HasSubstr("too deep a stack"));
}

}  // namespace
}  // namespace hydrant::checkpoint::pickle_test
