#pragma once

#include "cli/cli.h"

#include <string>
#include <vector>

namespace orrery::app {

/// `orrery store verify FILE` and `orrery store restore BACKUP [--force] [settings of the server]`: on files, without a server.
int verify_store_file(std::vector<std::string> arguments, cli::Streams& streams);
int restore_store_file(std::vector<std::string> arguments, cli::Streams& streams);

} // namespace orrery::app
