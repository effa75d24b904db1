# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: the binary, the libraries with their CMake package, the public headers and the embedded models.
# Outside projects say find_package(hydrant) and link hydrant::hydrant; tests/installation does just that.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(NOT TARGET hydrant_engine)
  message(STATUS "hydrant: src/engine is not there yet, so there is nothing to install")
  return()
endif()

# One target for users: the engine with everything below it. In-tree it is hydrant::hydrant, too.
add_library(hydrant_all INTERFACE)
target_link_libraries(hydrant_all INTERFACE hydrant_engine)
target_compile_features(hydrant_all INTERFACE cxx_std_20)
set_target_properties(hydrant_all PROPERTIES EXPORT_NAME hydrant)
add_library(hydrant::hydrant ALIAS hydrant_all)

# Command line and server are programs, not libraries for others, and would add their own dependencies to the package.
get_property(libraries GLOBAL PROPERTY HYDRANT_LIBRARIES)
list(REMOVE_ITEM libraries hydrant_cli hydrant_server)
foreach(library ${libraries})
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
install(TARGETS ${libraries} hydrant_all hydrant_flags EXPORT hydrant_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/hydrant DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET hydrant)
  install(TARGETS hydrant RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET hydrant_train_module)
  install(TARGETS hydrant_train_module hydrant_tokenizer_module LIBRARY DESTINATION lib/hydrant)  # src/cli/train/modules.cc looks there
endif()

set(HYDRANT_MODELS_DIR ${CMAKE_INSTALL_DATADIR}/hydrant/models)
install(DIRECTORY models/ DESTINATION ${HYDRANT_MODELS_DIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hydrant)
install(EXPORT hydrant_targets NAMESPACE hydrant:: FILE hydrant-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/hydrant-config.cmake.in ${PROJECT_BINARY_DIR}/hydrant-config.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS HYDRANT_MODELS_DIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hydrant-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hydrant-config.cmake ${PROJECT_BINARY_DIR}/hydrant-config-version.cmake
  DESTINATION ${package_dir})

if(PROJECT_IS_TOP_LEVEL)
  add_subdirectory(examples)
endif()
