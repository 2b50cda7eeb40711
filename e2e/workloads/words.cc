// A program to look at: writes prose at random, takes it apart with a regular expression, counts the words in a
// tree and sorts them. Built like most of what a distribution ships: -O2, no frame pointers.
// Usage: words SECONDS
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace words {

using Counts = std::map<std::string, int>;
using Ranking = std::vector<std::pair<std::string, int>>;

class Writer {
  public:
    __attribute__((noinline)) std::string page() {
        std::string text;
        for (int word = 0; word < 400; word++) {
            for (int letter = next() % 4 + 1; letter > 0; letter--) text += syllable();
            text += next() % 9 ? " " : ".\n";
        }
        return text;
    }

  private:
    uint64_t state_ = 1;

    uint32_t next() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state_ >> 33);
    }

    const char *syllable() {
        static const char *const syllables[] = {"ra", "si", "de", "win", "der", "ta", "lo", "mu"};
        return syllables[next() % 8];
    }
};

__attribute__((noinline)) std::vector<std::string> split(const std::string &page) {
    static const std::regex word("[a-z]+");
    std::vector<std::string> found;
    for (std::sregex_iterator at(page.begin(), page.end(), word), end; at != end; ++at) found.push_back(at->str());
    return found;
}

__attribute__((noinline)) void count(const std::vector<std::string> &found, Counts &counts) {
    for (const std::string &word : found) counts[word]++;
}

__attribute__((noinline)) Ranking rank(const Counts &counts) {
    Ranking ranking(counts.begin(), counts.end());
    std::sort(ranking.begin(), ranking.end(), [](const auto &a, const auto &b) {
        return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    return ranking;
}

}  // namespace words

int main(int argc, char **argv) {
    using clock = std::chrono::steady_clock;
    const auto end = clock::now() + std::chrono::duration<double>(argc > 1 ? std::atof(argv[1]) : 10.0);
    words::Writer writer;
    words::Counts counts;
    words::Ranking ranking;
    while (clock::now() < end) {
        for (int page = 0; page < 50; page++) words::count(words::split(writer.page()), counts);
        ranking = words::rank(counts);
    }
    std::printf("%zu words, the most frequent is %s\n", ranking.size(), ranking.at(0).first.c_str());
    return 0;
}
