// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "checkpoint/file_source.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

// About 20 values describe a tensor; 2^20 of them, 56 bytes each, are the memory that a hostile pickle can take.
constexpr size_t kMaxValues = size_t{1} << 20;
constexpr size_t kMaxStack = size_t{1} << 22;

enum class Kind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kTuple,
  kList,
  kDict,          // and OrderedDict
  kFunction,      // one of kFunctions
  kStorageClass,  // torch.FloatStorage, ...
  kStorage,       // a persistent id
  kTensor,        // its arguments in `items`
};

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kNone: return "None";
    case Kind::kBool: return "a boolean";
    case Kind::kInt:
    case Kind::kFloat: return "a number";
    case Kind::kText: return "text";
    case Kind::kTuple: return "a tuple";
    case Kind::kList: return "a list";
    case Kind::kDict: return "a dict";
    case Kind::kFunction: return "a function";
    case Kind::kStorageClass: return "a class";
    case Kind::kStorage: return "a storage";
    case Kind::kTensor: return "a tensor";
  }
  return "?";
}

using Id = uint32_t;  // index of a value; values refer to each other by it, so cycles and sharing cost nothing

struct Value {
  Kind kind = Kind::kNone;
  DType dtype = DType::kF32;   // storage class, storage
  int64_t number = 0;          // kBool, kInt; kStorage: elements; kFunction: index
  std::string_view text = {};  // kText; kStorage: key. Points into the pickle
  std::vector<Id> items = {};  // kTuple, kList; kDict: key, value, key, value, ..; kTensor: arguments
};

enum Function : int64_t { kOrderedDict, kRebuildTensor, kRebuildParameter };
constexpr std::array<std::string_view, 3> kFunctions = {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2",
                                                        "torch._utils._rebuild_parameter"};

constexpr std::array<std::pair<std::string_view, DType>, 7> kStorageClasses = {{{"torch.FloatStorage", DType::kF32},
                                                                                {"torch.HalfStorage", DType::kF16},
                                                                                {"torch.BFloat16Storage", DType::kBF16},
                                                                                {"torch.LongStorage", DType::kI64},
                                                                                {"torch.IntStorage", DType::kI32},
                                                                                {"torch.ByteStorage", DType::kU8},
                                                                                {"torch.BoolStorage", DType::kBool}}};

// Opcodes of Python's pickle protocols that state dicts do not use, for errors.
constexpr std::array<std::pair<uint8_t, const char*>, 30> kRefusedOpcodes = {
    {{'0', "POP"},       {'1', "POP_MARK"},   {'2', "DUP"},        {'F', "FLOAT"},          {'I', "INT"},
     {'L', "LONG"},      {'P', "PERSID"},     {'S', "STRING"},     {'T', "BINSTRING"},      {'U', "SHORT_BINSTRING"},
     {'V', "UNICODE"},   {'d', "DICT"},       {'g', "GET"},        {'i', "INST"},           {'l', "LIST"},
     {'p', "PUT"},       {'o', "OBJ"},        {'B', "BINBYTES"},   {'C', "SHORT_BINBYTES"}, {0x81, "NEWOBJ"},
     {0x82, "EXT1"},     {0x83, "EXT2"},      {0x84, "EXT4"},      {0x8e, "BINBYTES8"},     {0x8f, "EMPTY_SET"},
     {0x90, "ADDITEMS"}, {0x91, "FROZENSET"}, {0x92, "NEWOBJ_EX"}, {0x96, "BYTEARRAY8"},    {0x97, "NEXT_BUFFER"}}};

class Interpreter {
 public:
  Interpreter(std::string_view pickle, const std::string& file) : pickle_(pickle), file_(file) {}

  std::map<std::string, PickledTensor> Run() {
    while (!stopped_) {
      const auto op = static_cast<uint8_t>(Take(1)[0]);
      if (!RunFrame(op) && !RunScalar(op) && !RunContainer(op) && !RunMemo(op) && !RunObject(op)) RefuseOpcode(op);
    }
    if (position_ != pickle_.size()) Fail("has bytes after its end");
    return StateDict(Pop());
  }

 private:
  [[noreturn]] void Fail(const std::string& problem, const std::string& hint = {}) const {
    throw FileError(file_, "data.pkl " + problem, hint);
  }
  [[noreturn]] void RefuseOpcode(uint8_t op) const;
  [[noreturn]] void RefuseGlobal(const std::string& name) const;

  // The input.
  std::string_view Take(uint64_t count) {
    if (count > pickle_.size() - position_) Fail("ends too early", "the file is truncated or damaged");
    position_ += count;
    return pickle_.substr(position_ - count, count);
  }
  uint64_t TakeUnsigned(size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, Take(bytes).data(), bytes);  // little-endian
    return value;
  }
  std::string_view TakeLine() {
    const size_t end = pickle_.find('\n', position_);
    if (end == std::string_view::npos) Fail("ends too early", "the file is truncated or damaged");
    const std::string_view line = pickle_.substr(position_, end - position_);
    position_ = end + 1;
    return line;
  }

  // Values and the stack.
  Id New(Value value) {
    if (values_.size() == kMaxValues) Fail("has more than " + std::to_string(kMaxValues) + " values");
    values_.push_back(std::move(value));
    return static_cast<Id>(values_.size() - 1);
  }
  void Push(Id id) {
    if (stack_.size() == kMaxStack) Fail("needs too deep a stack");
    stack_.push_back(id);
  }
  void PushNew(Value value) { Push(New(std::move(value))); }
  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Id Pop() {
    if (stack_.size() <= Floor()) Fail("is malformed: a value is missing on the stack");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Value& Top() {
    if (stack_.size() <= Floor()) Fail("is malformed: a value is missing on the stack");
    return values_[stack_.back()];
  }
  std::vector<Id> PopToMark();
  void PushTuple(size_t count);

  // Groups of opcodes; each says whether it knew the opcode.
  bool RunFrame(uint8_t op);
  bool RunScalar(uint8_t op);
  bool RunContainer(uint8_t op);
  bool RunMemo(uint8_t op);
  bool RunObject(uint8_t op);

  void PushLong(uint64_t bytes);
  void PushText(uint64_t bytes) { PushNew({.kind = Kind::kText, .text = Take(bytes)}); }
  void Put(uint64_t index) {
    Top();
    memo_[static_cast<uint32_t>(index)] = stack_.back();
    if (memo_.size() > kMaxValues) Fail("remembers more than " + std::to_string(kMaxValues) + " values");
  }
  void Get(uint64_t index) {
    const auto it = memo_.find(static_cast<uint32_t>(index));
    if (it == memo_.end()) Fail("is malformed: it recalls a value that it never stored");
    Push(it->second);
  }
  void Extend(Kind kind, const std::vector<Id>& items);
  void PushGlobal(const std::string& name);
  void Reduce();
  void Build();
  void PushStorage();

  // The result.
  const Value& Expect(Id id, Kind kind, const char* what) const;
  std::vector<int64_t> Sizes(Id id, const char* what) const;
  PickledTensor Tensor(const Value& tensor) const;
  std::map<std::string, PickledTensor> StateDict(Id root) const;

  std::string_view pickle_;
  const std::string& file_;
  size_t position_ = 0;
  bool stopped_ = false;
  std::vector<Value> values_;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint32_t, Id> memo_;
};

void Interpreter::RefuseOpcode(uint8_t op) const {
  const auto* const known =
      std::find_if(kRefusedOpcodes.begin(), kRefusedOpcodes.end(), [&](const auto& row) { return row.first == op; });
  const std::string name = known == kRefusedOpcodes.end() ? "unknown" : known->second;
  Fail(
      "uses the pickle opcode " + std::to_string(op) + " (" + name + "), which no state dict of tensors needs: refused",
      "save model.state_dict() alone, or convert the checkpoint to safetensors");
}

void Interpreter::RefuseGlobal(const std::string& name) const {
  if (name.starts_with("torch.") && name.ends_with("Storage")) {
    Fail("holds tensors of " + Printable(name) + ", expected Float, Half, BFloat16, Long, Int, Byte or Bool storages");
  }
  Fail("wants to call " + Printable(name) + ": refused",
       "a checkpoint needs tensors, dicts, lists, numbers and text only; do not trust this file");
}

std::vector<Id> Interpreter::PopToMark() {
  if (marks_.empty()) Fail("is malformed: a mark is missing");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<Id> items(begin, stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return items;
}

void Interpreter::PushTuple(size_t count) {
  std::vector<Id> items(count);
  for (size_t i = count; i-- > 0;) items[i] = Pop();
  PushNew({.kind = Kind::kTuple, .items = std::move(items)});
}

bool Interpreter::RunFrame(uint8_t op) {
  switch (op) {
    case 0x80: {  // PROTO
      const uint64_t version = TakeUnsigned(1);
      if (version < 2 || version > 5) Fail("has pickle protocol " + std::to_string(version) + ", expected 2 to 5");
      return true;
    }
    case 0x95: TakeUnsigned(8); return true;  // FRAME: a hint for readers of streams
    case '.': stopped_ = true; return true;   // STOP
    case '(':                                 // MARK
      if (marks_.size() == kMaxStack) Fail("needs too deep a stack");
      marks_.push_back(stack_.size());
      return true;
    default: return false;
  }
}

// LONG1, LONG4: a little-endian two's complement number.
void Interpreter::PushLong(uint64_t bytes) {
  if (bytes > 8) Fail("has a number of " + std::to_string(bytes) + " bytes, expected at most 8");
  uint64_t bits = TakeUnsigned(bytes);
  if (bytes > 0 && bytes < 8 && (bits >> (8 * bytes - 1)) != 0) bits |= ~uint64_t{0} << (8 * bytes);
  PushNew({.kind = Kind::kInt, .number = std::bit_cast<int64_t>(bits)});
}

bool Interpreter::RunScalar(uint8_t op) {
  switch (op) {
    case 'N': PushNew({}); return true;                                   // NONE
    case 0x88: PushNew({.kind = Kind::kBool, .number = 1}); return true;  // NEWTRUE
    case 0x89: PushNew({.kind = Kind::kBool}); return true;               // NEWFALSE
    case 'J': PushLong(4); return true;                                   // BININT, signed
    case 'K':                                                             // BININT1
    case 'M': {                                                           // BININT2
      const auto number = static_cast<int64_t>(TakeUnsigned(op == 'K' ? 1 : 2));
      PushNew({.kind = Kind::kInt, .number = number});
      return true;
    }
    case 0x8a: PushLong(TakeUnsigned(1)); return true;                // LONG1
    case 0x8b: PushLong(TakeUnsigned(4)); return true;                // LONG4
    case 'G': Take(8), PushNew({.kind = Kind::kFloat}); return true;  // BINFLOAT
    case 0x8c: PushText(TakeUnsigned(1)); return true;                // SHORT_BINUNICODE
    case 'X': PushText(TakeUnsigned(4)); return true;                 // BINUNICODE
    case 0x8d: PushText(TakeUnsigned(8)); return true;                // BINUNICODE8
    default: return false;
  }
}

void Interpreter::Extend(Kind kind, const std::vector<Id>& items) {
  Value& target = Top();
  if (target.kind != kind) Fail(std::string("is malformed: it adds items to ") + NameOf(target.kind));
  if (kind == Kind::kDict && items.size() % 2 != 0) Fail("is malformed: a dict has a key without a value");
  target.items.insert(target.items.end(), items.begin(), items.end());
}

bool Interpreter::RunContainer(uint8_t op) {
  switch (op) {
    case ')': PushTuple(0); return true;  // EMPTY_TUPLE
    case 0x85: PushTuple(1); return true;
    case 0x86: PushTuple(2); return true;
    case 0x87: PushTuple(3); return true;
    case 't': {  // TUPLE
      std::vector<Id> items = PopToMark();
      PushNew({.kind = Kind::kTuple, .items = std::move(items)});
      return true;
    }
    case ']': PushNew({.kind = Kind::kList}); return true;  // EMPTY_LIST
    case 'a': {                                             // APPEND
      const Id item = Pop();
      Extend(Kind::kList, {item});
      return true;
    }
    case 'e': Extend(Kind::kList, PopToMark()); return true;  // APPENDS
    case '}': PushNew({.kind = Kind::kDict}); return true;    // EMPTY_DICT
    case 's': {                                               // SETITEM
      const Id value = Pop();
      const Id key = Pop();
      Extend(Kind::kDict, {key, value});
      return true;
    }
    case 'u': Extend(Kind::kDict, PopToMark()); return true;  // SETITEMS
    default: return false;
  }
}

bool Interpreter::RunMemo(uint8_t op) {
  switch (op) {
    case 'h': Get(TakeUnsigned(1)); return true;  // BINGET
    case 'j': Get(TakeUnsigned(4)); return true;  // LONG_BINGET
    case 'q': Put(TakeUnsigned(1)); return true;  // BINPUT
    case 'r': Put(TakeUnsigned(4)); return true;  // LONG_BINPUT
    case 0x94: Put(memo_.size()); return true;    // MEMOIZE
    default: return false;
  }
}

void Interpreter::PushGlobal(const std::string& name) {
  for (size_t i = 0; i < kFunctions.size(); ++i) {
    if (name != kFunctions[i]) continue;
    PushNew({.kind = Kind::kFunction, .number = static_cast<int64_t>(i)});
    return;
  }
  for (const auto& [spelling, dtype] : kStorageClasses) {
    if (name != spelling) continue;
    PushNew({.kind = Kind::kStorageClass, .dtype = dtype});
    return;
  }
  RefuseGlobal(name);
}

bool Interpreter::RunObject(uint8_t op) {
  switch (op) {
    case 'c': {  // GLOBAL
      const std::string module(TakeLine());
      PushGlobal(module + "." + std::string(TakeLine()));
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const Value& name = Expect(Pop(), Kind::kText, "the name of a global");
      const Value& module = Expect(Pop(), Kind::kText, "the module of a global");
      PushGlobal(std::string(module.text) + "." + std::string(name.text));
      return true;
    }
    case 'R': Reduce(); return true;       // REDUCE
    case 'b': Build(); return true;        // BUILD
    case 'Q': PushStorage(); return true;  // BINPERSID
    default: return false;
  }
}

void Interpreter::Reduce() {
  const Id arguments_id = Pop();
  const Id function_id = Pop();
  const std::vector<Id>& arguments = Expect(arguments_id, Kind::kTuple, "the arguments of a call").items;
  const int64_t function = Expect(function_id, Kind::kFunction, "what is called").number;
  const std::string name(kFunctions.at(static_cast<size_t>(function)));
  if (function == kOrderedDict) {
    if (!arguments.empty()) Fail("calls " + name + " with arguments, expected none");
    PushNew({.kind = Kind::kDict});
  } else if (function == kRebuildParameter) {
    if (arguments.size() != 3) Fail("calls " + name + " with " + std::to_string(arguments.size()) + " arguments");
    Expect(arguments[0], Kind::kTensor, "the data of a parameter");
    Push(arguments[0]);
  } else {
    // storage, offset, size, stride, requires_grad, backward_hooks[, metadata]
    if (arguments.size() != 6 && arguments.size() != 7) {
      Fail("calls " + name + " with " + std::to_string(arguments.size()) + " arguments, expected 6 or 7");
    }
    // The metadata can say "negated" or "conjugated": other numbers than those in the storage.
    if (arguments.size() == 7 && values_[arguments[6]].kind != Kind::kNone &&
        !Expect(arguments[6], Kind::kDict, "the metadata of a tensor").items.empty()) {
      Fail("holds a tensor with metadata (a negated or conjugated view), expected a plain one");
    }
    std::vector<Id> view(arguments.begin(), arguments.begin() + 4);
    PushNew({.kind = Kind::kTensor, .items = std::move(view)});
  }
}

// torch.save gives the OrderedDict of a state dict an attribute `_metadata` (module versions), which nobody needs.
void Interpreter::Build() {
  const Id state = Pop();
  if (Top().kind != Kind::kDict) Fail(std::string("sets attributes of ") + NameOf(Top().kind) + ": refused");
  Expect(state, Kind::kDict, "the attributes of a dict");
}

// ('storage', torch.FloatStorage, '0', 'cpu', 1024)
void Interpreter::PushStorage() {
  const std::vector<Id> id = Expect(Pop(), Kind::kTuple, "a persistent id").items;
  if (id.size() != 5 || Expect(id[0], Kind::kText, "the kind of a persistent id").text != "storage") {
    Fail("has a persistent id that is not a storage");
  }
  const DType dtype = Expect(id[1], Kind::kStorageClass, "the class of a storage").dtype;
  const std::string_view key = Expect(id[2], Kind::kText, "the key of a storage").text;
  const int64_t elements = Expect(id[4], Kind::kInt, "the length of a storage").number;
  if (elements < 0) Fail("has a storage of " + std::to_string(elements) + " elements");
  PushNew({.kind = Kind::kStorage, .dtype = dtype, .number = elements, .text = key});
}

const Value& Interpreter::Expect(Id id, Kind kind, const char* what) const {
  const Value& value = values_[id];
  if (value.kind != kind) {
    Fail(std::string("is malformed: ") + what + " is " + NameOf(value.kind) + ", expected " + NameOf(kind));
  }
  return value;
}

std::vector<int64_t> Interpreter::Sizes(Id id, const char* what) const {
  const Value& tuple = Expect(id, Kind::kTuple, what);
  if (tuple.items.size() > kMaxRank) {
    Fail(std::string("has a tensor of ") + std::to_string(tuple.items.size()) + " dimensions, expected at most 8");
  }
  std::vector<int64_t> sizes;
  for (const Id item : tuple.items) {
    sizes.push_back(Expect(item, Kind::kInt, what).number);
    if (sizes.back() < 0) Fail(std::string("has a negative number in ") + what);
  }
  return sizes;
}

PickledTensor Interpreter::Tensor(const Value& tensor) const {
  const Value& storage = Expect(tensor.items[0], Kind::kStorage, "the storage of a tensor");
  PickledTensor result;
  result.storage_key = std::string(storage.text);
  result.dtype = storage.dtype;
  result.storage_elements = storage.number;
  result.offset = Expect(tensor.items[1], Kind::kInt, "the offset of a tensor").number;
  if (result.offset < 0) Fail("has a tensor with a negative offset");
  result.shape = Sizes(tensor.items[2], "the shape of a tensor");
  result.strides = Sizes(tensor.items[3], "the strides of a tensor");
  if (result.shape.size() != result.strides.size()) Fail("has a tensor with more extents than strides, or fewer");
  return result;
}

std::map<std::string, PickledTensor> Interpreter::StateDict(Id root) const {
  if (values_[root].kind != Kind::kDict) {
    Fail(std::string("holds ") + NameOf(values_[root].kind) + ", expected a dict of tensors",
         "save model.state_dict() alone");
  }
  std::map<std::string, PickledTensor> tensors;
  const std::vector<Id>& items = values_[root].items;
  for (size_t i = 0; i < items.size(); i += 2) {
    const std::string name(Expect(items[i], Kind::kText, "the name of a tensor").text);
    const Value& value = values_[items[i + 1]];
    if (value.kind == Kind::kDict) {
      Fail("has a dict as '" + Printable(name) + "', expected a tensor",
           "this is a training checkpoint: load it with torch and save the inner dict of tensors alone");
    }
    if (value.kind != Kind::kTensor) {
      Fail("has " + std::string(NameOf(value.kind)) + " as '" + Printable(name) + "', expected a tensor",
           "save model.state_dict() alone");
    }
    if (!tensors.emplace(name, Tensor(value)).second) Fail("has tensor '" + Printable(name) + "' twice");
  }
  return tensors;
}

}  // namespace

std::map<std::string, PickledTensor> ReadStateDict(std::string_view pickle, const std::string& file) {
  return Interpreter(pickle, file).Run();
}

}  // namespace hydrant::checkpoint
