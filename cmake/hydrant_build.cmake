# SPDX-License-Identifier: Apache-2.0
# One static library per folder of src/, so that the link dependencies are the include rules of docs/architecture.md.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(HYDRANT_CCACHE ccache)
if(HYDRANT_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HYDRANT_CCACHE})
endif()

add_library(hydrant_flags INTERFACE)
target_compile_options(hydrant_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow
  # GCC 12 sees overlapping copies inside std::string's operator+ where there are none (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # GCC contracts a*b+c by default; then a one-row loop and a many-row loop would differ (docs/algorithms/order_of_additions.md).
  -ffp-contract=off)
if(HYDRANT_SANITIZE)
  target_compile_options(hydrant_flags INTERFACE -fsanitize=${HYDRANT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(hydrant_flags INTERFACE -fsanitize=${HYDRANT_SANITIZE})
endif()
if(HYDRANT_FUZZERS)
  target_compile_options(hydrant_flags INTERFACE -fsanitize=fuzzer-no-link)  # coverage; tests/fuzz links the fuzzer
endif()

# hydrant_folder(<name> [SOURCES a.cc ...] [DEPENDS folder ...] [LIBRARIES target ...] [ALONE a.cc ...] [SEPARATE]
#                [COLD] [INTERNAL])
# Without SOURCES: every .cc file in the folder that is no test. INTERNAL: for our own programs; it is not installed.
# Several files are compiled at a time, so that no two of them may have a name of their own in common; those of ALONE, and with
# SEPARATE all, each by itself.
# COLD: nothing here takes time when it runs, so that instrumented code is not optimized, which is long to compile.
function(hydrant_folder name)
  cmake_parse_arguments(ARG "INTERNAL;SEPARATE;COLD" "" "SOURCES;DEPENDS;LIBRARIES;ALONE" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB_RECURSE ARG_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cc)
    list(FILTER ARG_SOURCES EXCLUDE REGEX "_test\\.cc$")
  endif()
  add_library(hydrant_${name} STATIC ${ARG_SOURCES})
  target_include_directories(hydrant_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  list(TRANSFORM ARG_DEPENDS PREPEND hydrant_)
  target_link_libraries(hydrant_${name} PUBLIC ${ARG_DEPENDS} PRIVATE hydrant_flags ${ARG_LIBRARIES})
  if(NOT ARG_SEPARATE)
    set_target_properties(hydrant_${name} PROPERTIES UNITY_BUILD ${HYDRANT_UNITY} UNITY_BUILD_BATCH_SIZE 7)
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(ARG_COLD AND HYDRANT_SANITIZE AND NOT HYDRANT_FUZZERS)
    target_compile_options(hydrant_${name} PRIVATE -O0)
  endif()
  if(NOT ARG_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY HYDRANT_LIBRARIES hydrant_${name})
  endif()
endfunction()

# hydrant_test(<name> [SOURCES a_test.cc ...] DEPENDS folder ... [LIBRARIES target ...] [SLOW gtest-filter] [BUSY])
# Without SOURCES: every *_test.cc in the folder. Tests that match SLOW get the label "slow": `make test` runs them, the sanitizer runs leave them out.
function(hydrant_test name)
  if(NOT HYDRANT_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "BUSY" "TIMEOUT;SLOW" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB_RECURSE ARG_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *_test.cc)
  endif()
  add_executable(hydrant_${name}_test ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPENDS PREPEND hydrant_)
  target_link_libraries(hydrant_${name}_test PRIVATE ${ARG_DEPENDS} ${ARG_LIBRARIES} hydrant_flags GTest::gmock_main)
  target_include_directories(hydrant_${name}_test PRIVATE ${PROJECT_SOURCE_DIR})
  # Several files a time: most of a test's compile time is gtest's headers. So each file has a namespace of its own.
  set_target_properties(hydrant_${name}_test PROPERTIES UNITY_BUILD ${HYDRANT_UNITY} UNITY_BUILD_BATCH_SIZE 6)
  # Tests wait for the library, not for their own loops. BUSY: this test's own loops take long.
  if(ARG_BUSY)
    target_compile_options(hydrant_${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  else()
    target_compile_options(hydrant_${name}_test PRIVATE -O0)
  endif()
  # Tests find committed data by HYDRANT_SOURCE_DIR, and the reference cases that are not committed in ../shared
  # beside the checkout (or HYDRANT_SHARED_DIR); without those they say "skipped".
  target_compile_definitions(hydrant_${name}_test PRIVATE HYDRANT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  set(discover hydrant_${name}_test DISCOVERY_MODE PRE_TEST TEST_PREFIX ${name}.)
  if(NOT ARG_SLOW)
    gtest_discover_tests(${discover} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
    return()
  endif()
  gtest_discover_tests(${discover} TEST_FILTER ${ARG_SLOW} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS slow COST 1000)
  if(NOT ARG_SLOW STREQUAL "*")
    gtest_discover_tests(${discover} TEST_FILTER -${ARG_SLOW} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  endif()
endfunction()
