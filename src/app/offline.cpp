#include "app/offline.h"

#include <ostream>

namespace orrery::app {

int verify_store_file(std::vector<std::string> arguments, cli::Streams& streams) { return 1; }
int restore_store_file(std::vector<std::string> arguments, cli::Streams& streams) { return 1; }

} // namespace orrery::app
