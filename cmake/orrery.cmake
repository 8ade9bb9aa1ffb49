# What every target here is compiled with, and the one function that makes a module.

include(GoogleTest)
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json url filesystem system)
find_package(fmt REQUIRED)
find_package(GTest REQUIRED)
find_package(OpenSSL REQUIRED)

add_library(orrery_flags INTERFACE)
target_compile_options(orrery_flags INTERFACE -Wall -Wextra -Wpedantic -Werror -Wshadow -Wno-unused-parameter -Wno-missing-field-initializers
  -Xclang -fno-pch-timestamp)
target_compile_definitions(orrery_flags INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_PROCESS_V2_HEADER_ONLY=1)
target_include_directories(orrery_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_BINARY_DIR}/generated)
target_link_libraries(orrery_flags INTERFACE Threads::Threads Boost::json Boost::url Boost::filesystem Boost::system fmt::fmt)

# The program parses DNS and HTTP from the internet and holds the keys of a site. tests/lab checks each of these in the built program.
if(ORRERY_HARDENING STREQUAL "ON" OR (ORRERY_HARDENING STREQUAL "AUTO" AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo"))
  target_compile_options(orrery_flags INTERFACE -fstack-protector-strong -fstack-clash-protection -fcf-protection)
  target_compile_definitions(orrery_flags INTERFACE _FORTIFY_SOURCE=3 _GLIBCXX_ASSERTIONS)
  target_link_options(orrery_flags INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()

# Sanitized code is not optimised: that takes two thirds off its build, and its tests still take seconds.
if(ORRERY_SANITIZER STREQUAL "asan")
  # Asio recycles coroutine frames, which hides a read of a finished coroutine's locals.
  target_compile_options(orrery_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O0 -gline-tables-only)
  target_compile_definitions(orrery_flags INTERFACE BOOST_ASIO_DISABLE_AWAITABLE_FRAME_RECYCLING ORRERY_SANITIZED=1)
  target_link_options(orrery_flags INTERFACE -fsanitize=address,undefined)
elseif(ORRERY_SANITIZER STREQUAL "tsan")
  target_compile_options(orrery_flags INTERFACE -fsanitize=thread -O0 -gline-tables-only)
  target_compile_definitions(orrery_flags INTERFACE ORRERY_SANITIZED=1)
  target_link_options(orrery_flags INTERFACE -fsanitize=thread)
endif()
if(ORRERY_FUZZ)
  target_compile_options(orrery_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Puts batches of sources into files that include them: what they have in common is compiled once. Like CMake's unity build, except that the
# files name no folder of this machine, so that clones share what is cached.
function(orrery_batches out name)
  set(sources ${ARGN})
  if(NOT ORRERY_BATCH)
    set(${out} ${sources} PARENT_SCOPE)
    return()
  endif()
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  set(batches) # the files made
  set(text "")  # of the one being made
  set(held 0)
  foreach(source IN LISTS sources ITEMS "")
    if(held EQUAL ORRERY_BATCH OR (NOT source AND held GREATER 0))
      list(LENGTH batches number)
      file(CONFIGURE OUTPUT ${name}_${number}.cpp CONTENT "${text}" @ONLY)
      list(APPEND batches ${CMAKE_CURRENT_BINARY_DIR}/${name}_${number}.cpp)
      set(text "")
      set(held 0)
    endif()
    string(APPEND text "#include \"${folder}/${source}\"\n")
    math(EXPR held "${held} + 1")
  endforeach()
  set(${out} ${batches} PARENT_SCOPE)
endfunction()

# orrery_tests(store SOURCES a_test.cpp b_test.cpp LIBS orrery_store) makes the program store_test, each of whose tests is one of ctest's.
function(orrery_tests name)
  cmake_parse_arguments(T "" "" "SOURCES;LIBS" ${ARGN})
  orrery_batches(sources ${name}_test ${T_SOURCES})
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE ${T_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(NOT ORRERY_BATCH)
    target_precompile_headers(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/cmake/precompiled.h <gtest/gtest.h> <gmock/gmock.h>)
  endif()
  gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}." PROPERTIES TIMEOUT 120 LABELS unit)
  set_property(GLOBAL APPEND PROPERTY ORRERY_TESTS ${name}_test)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo") # unit tests run in the sanitized builds; this one is for labs and benches
    set_target_properties(${name}_test PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# orrery_module(store DEPS core net SOURCES a.cpp b.cpp TESTS a_test.cpp LIBS sqlite3)
# makes the library orrery_store and, where there are tests, the program store_test. Small modules of one folder put their tests into one program,
# which is compiled much faster: with TESTS_WITH drivers they are in drivers_test, made by orrery_tests_with(drivers) in that folder.
function(orrery_module name)
  cmake_parse_arguments(M "" "TESTS_WITH" "DEPS;SOURCES;TESTS;LIBS;TEST_DEPS" ${ARGN})
  list(TRANSFORM M_DEPS PREPEND orrery_)
  list(TRANSFORM M_TEST_DEPS PREPEND orrery_)
  orrery_batches(sources ${name} ${M_SOURCES})
  add_library(orrery_${name} STATIC ${sources})
  target_link_libraries(orrery_${name} PUBLIC orrery_flags ${M_DEPS} PRIVATE ${M_LIBS})
  if(NOT ORRERY_BATCH) # batches are few: a precompiled header would cost more than it saves, and clones could not share what is made with it
    target_precompile_headers(orrery_${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/precompiled.h)
  endif()
  if(M_TESTS_WITH)
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/src/${M_TESTS_WITH} ${CMAKE_CURRENT_SOURCE_DIR})
    list(TRANSFORM M_TESTS PREPEND ${folder}/)
    set_property(GLOBAL APPEND PROPERTY ORRERY_TESTS_${M_TESTS_WITH} ${M_TESTS})
    set_property(GLOBAL APPEND PROPERTY ORRERY_TESTED_${M_TESTS_WITH} orrery_${name} ${M_TEST_DEPS} ${M_LIBS})
  elseif(M_TESTS)
    orrery_tests(${name} SOURCES ${M_TESTS} LIBS orrery_${name} ${M_TEST_DEPS} ${M_LIBS})
  endif()
endfunction()

function(orrery_tests_with name)
  get_property(tests GLOBAL PROPERTY ORRERY_TESTS_${name})
  get_property(libs GLOBAL PROPERTY ORRERY_TESTED_${name})
  orrery_tests(${name} SOURCES ${tests} LIBS ${libs})
endfunction()

# The allocator of what we ship, and of what measures it. Before other libraries, so that malloc is its: many small allocations made on one thread and
# freed on another cost a third less than with glibc's.
function(orrery_allocator target)
  if(NOT ORRERY_SANITIZER)
    find_package(mimalloc REQUIRED)
    target_link_libraries(${target} PRIVATE mimalloc)
  endif()
endfunction()
