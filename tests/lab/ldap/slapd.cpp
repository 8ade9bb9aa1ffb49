#include "slapd.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern char** environ; // NOLINT

namespace orrery::lab {

namespace {

constexpr auto slapd_program = "/usr/sbin/slapd";

constexpr auto configuration = R"(include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
include /etc/ldap/schema/nis.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
pidfile {0}/slapd.pid
argsfile {0}/slapd.args
TLSCACertificateFile {0}/ca.pem
TLSCertificateFile {0}/server.pem
TLSCertificateKeyFile {0}/server.key
database mdb
suffix dc=example,dc=org
rootdn cn=root,dc=example,dc=org
rootpw {0}
directory {0}/db
maxsize 16777216
overlay memberof
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=search,dc=example,dc=org" read by * none
)";

// Everybody's password is the uid and " password".
constexpr auto entries = R"(dn: dc=example,dc=org
objectClass: domain
dc: example

dn: cn=search,dc=example,dc=org
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: search
userPassword: search password

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=partners,dc=example,dc=org
objectClass: organizationalUnit
ou: partners

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

dn: uid=alice,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: alice
cn: Alice
sn: Arden
userPassword: alice password
memberOf: cn=operators,ou=groups,dc=example,dc=org

dn: uid=bob,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: Barley
userPassword: bob password

dn: uid=carol,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: carol
cn: Carol
sn: Cole
userPassword: carol password

dn: cn=Smith\, John (Ops*),ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: jsmith
cn: Smith, John (Ops*)
sn: Smith
userPassword: jsmith password

dn: uid=twin,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: twin
cn: Twin
sn: One
userPassword: twin password

dn: uid=twin,ou=partners,dc=example,dc=org
objectClass: inetOrgPerson
uid: twin
cn: Twin
sn: Two
userPassword: twin password

dn: uid=keyless,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: keyless
cn: Keyless
sn: Without

dn: cn=viewers,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: viewers
member: uid=alice,ou=people,dc=example,dc=org
member: uid=twin,ou=people,dc=example,dc=org
member: uid=keyless,ou=people,dc=example,dc=org
member: cn=Smith\, John (Ops*),ou=people,dc=example,dc=org

dn: cn=operators,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: operators
member: uid=alice,ou=people,dc=example,dc=org

dn: cn=admins,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: admins
member: uid=carol,ou=people,dc=example,dc=org

dn: cn=gardeners,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: gardeners
member: uid=bob,ou=people,dc=example,dc=org

dn: cn=posix,ou=groups,dc=example,dc=org
objectClass: posixGroup
cn: posix
gidNumber: 5000
memberUid: bob
)";

void write_file(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int listen_on_loopback(std::uint16_t& port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto address = loopback(0);
    socklen_t size = sizeof address;
    if (socket < 0 || ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(socket, 16) != 0 ||
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0)
        std::abort();
    port = ntohs(address.sin_port);
    return socket;
}

bool answers_on(const char* host, std::uint16_t port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto address = loopback(port);
    ::inet_pton(AF_INET, host, &address.sin_addr);
    const bool answers = ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(socket);
    return answers;
}

} // namespace

std::uint16_t free_port() {
    std::uint16_t port = 0;
    ::close(listen_on_loopback(port));
    return port;
}

SilentServer::SilentServer() { socket_ = listen_on_loopback(port_); }
SilentServer::~SilentServer() { ::close(socket_); }

std::string Slapd::missing() {
    if (::access(slapd_program, X_OK) != 0) return "skipped because slapd is not installed (Debian package slapd)";
    if (::access("/usr/bin/openssl", X_OK) != 0) return "skipped because openssl is not installed";
    return {};
}

Slapd::Slapd() : port_(free_port()), tls_port_(free_port()) {}
Slapd::~Slapd() { stop(); }

std::string Slapd::plain_url() const { return fmt::format("ldap://127.0.0.1:{}", port_); }
std::string Slapd::tls_url() const { return fmt::format("ldaps://127.0.0.1:{}", tls_port_); }
std::string Slapd::misnamed_url() const { return fmt::format("ldaps://127.0.0.2:{}", tls_port_); }

bool Slapd::run(const std::string& command) const {
    const auto line = fmt::format("cd '{}' && {} >>log 2>&1 </dev/null", folder_.path().string(), command);
    return std::system(line.c_str()) == 0; // NOLINT: a test's own commands
}

bool Slapd::prepare() {
    std::filesystem::create_directories(folder_ / "db");
    write_file(folder_ / "slapd.conf", fmt::format(configuration, folder_.path().string()));
    write_file(folder_ / "entries.ldif", entries);
    write_file(folder_ / "names", "subjectAltName=IP:127.0.0.1\n");
    const auto authority = [](const std::string& name) {
        return fmt::format("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {0}.key -out {0}.pem "
                           "-days 2 -subj /CN={0}",
                           name);
    };
    return run(authority("ca")) && run(authority("other-ca")) &&
           run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj "
               "/CN=localhost") &&
           run("openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile "
               "names") &&
           run("/usr/sbin/slapadd -f slapd.conf -l entries.ldif");
}

bool Slapd::start() {
    if (!prepared_) prepared_ = prepare();
    bool up = prepared_;
    if (up) {
        const auto urls = fmt::format("{}/ {}/ {}/", plain_url(), tls_url(), misnamed_url());
        const auto file = (folder_ / "slapd.conf").string();
        std::vector<const char*> arguments{slapd_program, "-f", file.c_str(), "-h", urls.c_str(), "-d", "0", nullptr};
        up = ::posix_spawn(&pid_, slapd_program, nullptr, nullptr, const_cast<char**>(arguments.data()), environ) == 0;
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (up && !(answers_on("127.0.0.1", port_) && answers_on("127.0.0.1", tls_port_) && answers_on("127.0.0.2", tls_port_))) {
        up = std::chrono::steady_clock::now() < end && ::waitpid(pid_, nullptr, WNOHANG) == 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (!up) ADD_FAILURE() << "slapd does not start: " << std::ifstream(folder_ / "log").rdbuf();
    return up;
}

void Slapd::stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > end) ::kill(pid_, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pid_ = 0;
}

} // namespace orrery::lab
